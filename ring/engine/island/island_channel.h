#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cross_copy.h"
#include "ring/engine/island/post_board.h"
#include "transport/bell.h"

namespace rondo {

// How the ranks of an island meet for one communicator: a board, and the bells that wake the others' flows. It
// counts the barriers, since their numbers go on from call to call. IslandMemory owns it. Under the lease.
struct IslandChannel {
  PostBoard board;
  std::vector<std::shared_ptr<Bell>> bells;  // by rank; nullptr for this one
  uint64_t barriers = 0;                     // so far
  Stores stores = Stores::kCached;           // how what the others read is written

  void ring(int rank) const { bells[static_cast<size_t>(rank)]->ring(); }
};

}  // namespace rondo
