#include "ring/engine/island/grace_period.h"

namespace rondo {

bool GracePeriod::over(PostBoard& board, const SharedMemory& memory, std::span<const int> world_ranks,
                       Clock::time_point now) {
  if (!begun_) {
    accesses_.reserve(world_ranks.size());  // first: where this throws, the next look begins
    stopped_.reserve(world_ranks.size());
    begun_ = true;
    until_ = memory.stops_alone() ? now + kLongest : Clock::time_point::max();
    board.close();
    for (int rank = 0; rank < static_cast<int>(world_ranks.size()); ++rank) {
      // close() comes before these loads. A rank that enters an access later sees it, since both sides store
      // before they load (BoardOrders), and touches nothing.
      const uint64_t number = board.access(rank);
      if (number % 2 != 0) accesses_.push_back({rank, number});  // not this rank: it is here
    }
  }
  // An access is over when its number changes, or its process has ended: then nobody touches the memory.
  std::erase_if(accesses_, [&](const Access& access) {
    return board.access(access.rank) != access.number || memory.ended(world_ranks[static_cast<size_t>(access.rank)]);
  });
  if (now >= until_) {
    for (const Access& access : accesses_) stopped_.push_back(access.rank);
    accesses_.clear();
  }
  return accesses_.empty();
}

}  // namespace rondo
