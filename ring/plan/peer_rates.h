#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ring/base/types.h"

namespace rondo {

// How fast the devices of ranks write into each other's memory.
struct PeerRates {
  int world = 1;
  std::vector<uint64_t> mib_per_s;  // [from * world + to]; 0: `from` cannot write there

  uint64_t of(int from, int to) const {
    return mib_per_s[static_cast<size_t>(from) * static_cast<size_t>(world) + static_cast<size_t>(to)];
  }
  // Every rank reaches every other.
  bool complete() const;
};

// An order of all ranks, rank 0 first, in which each can write to the next one, and the last to the first, such that
// the slowest of these pairs is as fast as can be found; of equals one that goes on by the fastest pairs first, then to
// the next rank. Rates that differ by less than a fifth may count as equal, since they are measured. Empty: none was
// found. Pure; at most 20,000 steps for each class of rates.
std::vector<int> ring_order(const PeerRates& rates);

// What a call on device memory takes, in microseconds, by a model: every byte crosses between two devices at their
// rate, a device reads and writes at once, and its peers share its port; a pass costs kPassMicroseconds besides.
// bytes: of the largest buffer of a rank. root: -1 where there is none.
struct DeviceCall {
  Collective collective = Collective::kAllReduce;
  int root = -1;
  uint64_t bytes = 0;
};
// By one pass over the memory of all ranks. Requires complete().
double registered_microseconds(const PeerRates& rates, const DeviceCall& call);
// Around the ring, in pieces that each rank passes on whole.
double ring_microseconds(const PeerRates& rates, std::span<const int> order, const DeviceCall& call);

// Whether there is a ring for the collective over devices that only reach their neighbors.
bool ring_of_neighbors(Collective collective);

// kRegistered or kRing, the faster one of those that there are; kAuto: neither, or not the one that is asked for
// (kAuto: any). order: of the ring; empty: there is none. Pure, so that ranks that know the same rates choose alike.
Algorithm choose_device_plan(const PeerRates& rates, std::span<const int> order, const DeviceCall& call,
                             Algorithm asked);

// Launch, signals and waits of a pass. Not measured: no machine with several GPUs was at hand. CUDA's own launches and
// stream waits take some 2 to 5 microseconds each.
inline constexpr double kPassMicroseconds = 10;

}  // namespace rondo
