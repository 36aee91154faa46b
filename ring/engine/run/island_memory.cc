#include "ring/engine/run/island_memory.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "ring/base/log.h"

namespace rondo {

IslandMemory::IslandMemory(const CommunicatorContext& context)
    : context_(context), shared_(context.fabric->shared_memory()), windows_(context.members.size()) {}

void IslandMemory::offer() {
  std::shared_ptr<Window>& own = windows_[static_cast<size_t>(context_.rank)];
  own = shared_->make(window_bytes(), context_.id);
  // Into the caches, or the first calls would be slower than those that follow, and be timed so.
  if (context_.world() <= kRanksOfLargeRings) std::memset(own->data() + PostBoard::kPostsOffset, 0, ring_bytes());
  for (int rank = 0; rank < context_.world(); ++rank) {
    if (rank == context_.rank) continue;
    if (const auto bell = context_.fabric->bell_of(context_.id, context_.world_rank(rank))) bell->ring();
  }
}

bool IslandMemory::map(int rank) {
  std::shared_ptr<Window>& window = windows_[static_cast<size_t>(rank)];
  if (!window) window = shared_->find(context_.world_rank(rank), SharedMemory::id_of(context_.id));
  if (!window) return false;
  if (window->bytes() < window_bytes()) {
    throw Exception(Error{ErrorCode::kProtocol,
                          fmt::format("{} shares {} bytes of memory; rank {} expects {}", context_.name(rank),
                                      window->bytes(), context_.rank, window_bytes()),
                          {rank}});
  }
  return true;
}

bool IslandMemory::attach() {
  if (attached()) return true;
  if (!windows_[static_cast<size_t>(context_.rank)]) offer();
  std::vector<std::byte*> boards;
  std::vector<std::shared_ptr<Bell>> bells;
  for (int rank = 0; rank < context_.world(); ++rank) {
    if (!map(rank)) return false;
    const bool own = rank == context_.rank;
    boards.push_back(windows_[static_cast<size_t>(rank)]->data());
    bells.push_back(own ? nullptr : context_.fabric->bell_of(context_.id, context_.world_rank(rank)));
    if (!own && !bells.back()) return false;
  }
  channel_.board = PostBoard(std::move(boards), context_.rank, ring_bytes());
  channel_.bells = std::move(bells);
  return true;
}

bool IslandMemory::close_buffers(Clock::time_point now) {
  if (!attached()) return true;
  const bool told = !end_.stopped().empty();
  if (!end_.over(channel_.board, *shared_, context_.members, now)) return false;
  const Logger log(context_.config.debug, context_.world_rank(context_.rank));
  for (const int rank : end_.stopped()) {
    if (told || !log.shows(LogLevel::kWarn)) break;
    log.warn(
        fmt::format("{} is stopped in the middle of a slice: what it was writing to registered memory of rank {} "
                    "it may still write when it goes on",
                    context_.name(rank), context_.rank));
  }
  return true;
}

void IslandMemory::release() {
  channel_ = IslandChannel();
  for (std::shared_ptr<Window>& window : windows_) window.reset();
}

}  // namespace rondo
