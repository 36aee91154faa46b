#include "ring/engine/island/island_memory.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "ring/base/hash.h"
#include "ring/base/log.h"

namespace rondo {

static_assert(PostBoard::kHeadBytes <= kRankPageBytes);
namespace {

// Brings memory into this core's caches. It reads, and does not write: other ranks may be posting there
// already.
void read_each_line(std::span<const std::byte> memory) {
  for (size_t at = 0; at < memory.size(); at += kLineBytes) {
    static_cast<void>(*static_cast<const volatile std::byte*>(&memory[at]));
  }
}

}  // namespace

IslandMemory::IslandMemory(const CommunicatorContext& context)
    : context_(context), shared_(context.fabric->shared_memory()) {}

bool IslandMemory::attach() {
  if (attached()) return true;
  const auto world = static_cast<size_t>(context_.world());
  pages_.resize(world);
  channel_.bells.resize(world);
  bool all = true;
  for (size_t rank = 0; rank < world; ++rank) {  // all are asked for before the first is waited for
    if (pages_[rank]) continue;
    RankPage page = context_.fabric->page_of(context_.id, context_.world_rank(static_cast<int>(rank)));
    all &= page.memory != nullptr;
    pages_[rank] = std::move(page.memory);
    channel_.bells[rank] = std::move(page.bell);
  }
  if (!all) return false;
  std::vector<std::byte*> heads;
  for (const auto& page : pages_) heads.push_back(page.get());
  channel_.board = PostBoard(std::move(heads), context_.rank, few());
  return true;
}

// Posts of up to kSmallBytes lie beside their flag in the head. Longer ones need short slots in any case: the
// last round of a call may be short.
bool IslandMemory::attach_posts(int rank, size_t bytes, PostBoard::Flow flow) {
  if (bytes <= PostBoard::kSmallBytes) return true;
  bool all = true;
  // What is left for the last round may be short.
  for (const BoardPart part : {BoardPart::kShortSlots, PostBoard::part_of(bytes, flow, few())}) {
    std::byte* const memory = memory_of(static_cast<size_t>(part), rank);
    all &= memory != nullptr;
    if (memory != nullptr) channel_.board.lay(part, rank, memory);
  }
  return all;
}

size_t IslandMemory::bytes_of(size_t part) const {
  return part == kStaging ? context_.config.staging_bytes : PostBoard::bytes_of(static_cast<BoardPart>(part));
}

uint64_t IslandMemory::name_of(size_t part) const { return Hash64().add("part").add(context_.id).add(part).value(); }

// Makes this rank's window of a part and tells the others. The name is a hash of communicator and part, so the
// others find it without a message. The fabric keeps it as long as a member may read there.
void IslandMemory::offer(size_t part) {
  std::shared_ptr<Window>& own = windows_[part][static_cast<size_t>(context_.rank)];
  own = shared_->make(bytes_of(part), name_of(part));
  context_.fabric->keep(context_.id, own);
  // Into the caches, or the first calls would be slower than those that follow, and be timed so.
  const bool large = part != kStaging && part != static_cast<size_t>(BoardPart::kShortSlots);
  if (large && few()) read_each_line({own->data(), own->bytes()});
  for (int rank = 0; rank < context_.world(); ++rank) {
    if (rank != context_.rank) channel_.ring(rank);
  }
}

// The memory of a part of a rank; nullptr: that rank has not offered it yet. Its size is the peer's word, and
// is checked.
std::byte* IslandMemory::memory_of(size_t part, int rank) {
  std::vector<std::shared_ptr<Window>>& windows = windows_[part];
  windows.resize(static_cast<size_t>(context_.world()));
  std::shared_ptr<Window>& window = windows[static_cast<size_t>(rank)];
  if (!window && rank == context_.rank) offer(part);
  if (!window) window = shared_->find(context_.world_rank(rank), SharedMemory::id_of(name_of(part)));
  if (!window) return nullptr;
  if (window->bytes() >= bytes_of(part)) return window->data();
  throw Exception(Error{ErrorCode::kProtocol,
                        fmt::format("{} shares {} bytes of memory; rank {} expects {}", context_.name(rank),
                                    window->bytes(), context_.rank, bytes_of(part)),
                        {rank}});
}

// Warns once of ranks that were not waited for any longer.
bool IslandMemory::close_buffers(Clock::time_point now) {
  if (!attached()) return true;
  const bool warned = !end_.stopped().empty();
  if (!end_.over(channel_.board, *shared_, context_.members, now)) return false;
  const Logger log(context_.config.debug, context_.world_rank(context_.rank));
  for (const int rank : end_.stopped()) {
    if (warned || !log.shows(LogLevel::kWarn)) break;
    log.warn(
        fmt::format("{} is stopped in the middle of a slice: what it was writing to registered memory of rank {} "
                    "it may still write when it goes on",
                    context_.name(rank), context_.rank));
  }
  return true;
}

void IslandMemory::release() {
  channel_ = IslandChannel();
  windows_ = {};
  pages_.clear();
}

}  // namespace rondo
