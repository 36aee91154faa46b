#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "ring/engine/island/post_board.h"
#include "ring/engine/progress/operation.h"
#include "transport/shared_memory.h"

namespace rondo {

// The end of a rank's buffers on a board, after its communicator has failed. The rank closes its buffers, then
// waits until no other rank is in an access that began before. From then on its operations may end, and their
// memory is the caller's, whether the others know of the failure or not. Under the lease.
class GracePeriod {
 public:
  // The longest wait for a peer that is stopped in the middle of a slice (SIGSTOP, a debugger). When that one
  // goes on it finds the buffers closed, and fails; what it was about to write to registered memory it still
  // writes.
  static constexpr std::chrono::seconds kLongest{1};

  // Closes this rank's buffers at the first call; then says whether the grace period is over. world_ranks: all
  // ranks of the board. Never blocks: ask again while it is not. Throws std::bad_alloc: nothing is closed yet;
  // ask again.
  bool over(PostBoard& board, const SharedMemory& memory, std::span<const int> world_ranks, Clock::time_point now);

  // Afterwards: the ranks that were no longer waited for.
  const std::vector<int>& stopped() const { return stopped_; }

 private:
  struct Access {
    int rank = -1;
    uint64_t number = 0;  // PostBoard::access() then
  };

  bool begun_ = false;  // the buffers are closed
  Clock::time_point until_{};
  std::vector<Access> accesses_;  // under way at the last look
  std::vector<int> stopped_;
};

}  // namespace rondo
