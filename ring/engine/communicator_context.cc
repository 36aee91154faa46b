#include "ring/engine/communicator_context.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

namespace rondo {

CommunicatorContext::CommunicatorContext(ForkMark of_process) : mark(std::move(of_process)), pid(getpid()) {}

std::string CommunicatorContext::name(int rank_in_group) const {
  const std::string in_world = fabric->peer_name(world_rank(rank_in_group));
  if (world_rank(rank_in_group) == rank_in_group) return in_world;
  return "rank " + std::to_string(rank_in_group) + " (world " + in_world + ")";
}

// Linear: asked at failures and goodbyes, and once for each stream that a peer opens.
int CommunicatorContext::group_rank(int world_rank_of_peer) const {
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i] == world_rank_of_peer) return static_cast<int>(i);
  }
  return -1;
}

// The fork comes first: a child has a copy of its parent's failure, but the communicator is not its own.
void CommunicatorContext::refuse_use() const {
  if (!mark.same_process()) {
    throw Exception(
        ErrorCode::kInvalid,
        fmt::format("this process (pid {}) was forked from rank {} (pid {}): a communicator belongs to the process "
                    "that joined; make a new one after the fork",
                    getpid(), rank, pid));
  }
  if (const Error* const why = failure.get()) throw Exception(*why);
  // destroy() has begun on another thread, and sets its reason once the streams of a device are through.
  throw Exception(
      Error{ErrorCode::kClosed, fmt::format("the communicator is being destroyed on rank {}", rank), {rank}});
}

// This rank's reason is kInterrupted, and is set first. The others get kAborted, which names this rank.
void CommunicatorContext::interrupt() noexcept {
  try {
    const std::string text = name(rank) + " was interrupted while it waited";
    failure.set({ErrorCode::kInterrupted, text, {rank}});
    fabric->abort(id, {ErrorCode::kAborted, text, {world_rank(rank)}});
  } catch (...) {
    fail_without_memory();
  }
}

// Sets the reason here before the others are told: when their failure comes back, it is not the first one here.
void CommunicatorContext::fail(const Error& error) noexcept {
  if (failure.get() != nullptr) return;
  try {
    Error named = error;
    if (named.ranks.empty()) {
      named.ranks = {rank};
      named.message = name(rank) + ": " + error.message;
    }
    failure.set(named);
    abort_everywhere(named);
  } catch (...) {
    fail_without_memory();
  }
}

void CommunicatorContext::fail_for_memory() {
  fail({ErrorCode::kSystem, "out of memory", {}});
  throw Exception(*failure.get());
}

// A rank that is no member has no process: -1 and 0 keep the lists as long as the ranks'.
void CommunicatorContext::locate(Error& error) const {
  for (const int culprit : error.ranks) {
    const bool member = culprit >= 0 && culprit < world() && fabric != nullptr;
    error.world_ranks.push_back(member ? world_rank(culprit) : -1);
    error.processes.push_back(member ? fabric->process(error.world_ranks.back()) : 0);
  }
}

void CommunicatorContext::abort_everywhere(Error error) {
  for (int& culprit : error.ranks) culprit = world_rank(culprit);
  fabric->abort(id, error);
}

// A second try with less text: other threads free memory now and then.
void CommunicatorContext::fail_without_memory() noexcept {
  failure.set({ErrorCode::kSystem, "out of memory", {}});
  try {
    abort_everywhere({ErrorCode::kSystem, name(rank) + ": out of memory", {rank}});
  } catch (...) {
    // The others find out by their deadline, or by the end of this process.
  }
}

}  // namespace rondo
