#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "ring/engine/island/post_board.h"
#include "ring/engine/progress/operation.h"
#include "transport/shared_memory.h"

namespace rondo {

// The end of a rank's buffers on a board: it closes them, and waits until no other rank is in an access that began
// before. From then on its operations may end, and their memory is the caller's, whether the others have heard of the
// failure or not. Under the lease.
class GracePeriod {
 public:
  // A peer that is stopped in the middle of a slice (SIGSTOP, a debugger) is waited for so long. When it goes on it
  // finds the buffers closed, so it fails; what it was about to write to registered memory it still writes.
  static constexpr std::chrono::seconds kLongest{1};

  // Closes this rank's buffers, the first time; then whether the grace period is over. world_ranks: of all ranks of the
  // board. Never blocks: ask again while it is not. Throws std::bad_alloc: nothing is closed yet; ask again.
  bool over(PostBoard& board, const SharedMemory& memory, std::span<const int> world_ranks, Clock::time_point now);

  // Afterwards: the ranks that were not waited for any longer.
  const std::vector<int>& stopped() const { return stopped_; }

 private:
  struct Access {
    int rank = -1;
    uint64_t number = 0;  // PostBoard::access() then
  };

  bool begun_ = false;
  Clock::time_point until_{};
  std::vector<Access> accesses_;  // under way at the last look
  std::vector<int> stopped_;
};

}  // namespace rondo
