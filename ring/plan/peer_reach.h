#pragma once

#include <span>
#include <vector>

#include "ring/base/types.h"

namespace rondo {

// Which ranks' devices write into whose memory.
struct PeerReach {
  int world = 1;
  std::vector<bool> reaches;  // [from * world + to]

  bool of(int from, int to) const {
    return reaches[static_cast<size_t>(from) * static_cast<size_t>(world) + static_cast<size_t>(to)];
  }
  // Every rank reaches every other.
  bool complete() const;
};

// An order of all ranks, rank 0 first, in which each can write to the next one, and the last to the first; of several
// one that goes on with the next ranks first. Empty: none was found in 20,000 steps. Pure.
std::vector<int> ring_order(const PeerReach& reach);

// Whether there is a ring for the collective over devices that only reach their neighbors.
bool ring_of_neighbors(Collective collective);

// kDirect, by posts, of a short block, and kRegistered where all reach all, else kRing, unless one of these two is
// asked for; kAuto: neither can be, or not the one that is asked for (kAuto: any). order: of the ring; empty: there is
// none. Pure: ranks that know the same choose alike.
Algorithm choose_device_plan(const PeerReach& reach, std::span<const int> order, Collective collective, Algorithm asked,
                             bool is_short);

}  // namespace rondo
