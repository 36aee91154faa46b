#pragma once

#include <algorithm>
#include <cstddef>

#include "rondo/collective.h"
#include "rondo/topology.h"

// What the planner and the engine know of collectives, algorithms and topologies, beyond the public enumerations.

namespace rondo {

// Each rank gets the fold of the ranks before it, so their order matters.
constexpr bool collective_scans(Collective c) { return c == Collective::kScan || c == Collective::kExscan; }
constexpr bool collective_reduces(Collective c) {
  return c == Collective::kAllReduce || c == Collective::kReduceScatter || c == Collective::kReduce ||
         collective_scans(c);
}
constexpr bool collective_has_root(Collective c) {
  return c == Collective::kBroadcast || c == Collective::kReduce || c == Collective::kGather ||
         c == Collective::kScatter;
}

// Algorithms on windows, in the callers' memory or the library's, whose places the ranks exchange first.
constexpr bool over_windows(Algorithm algorithm) {
  return algorithm == Algorithm::kWindow || algorithm == Algorithm::kStaged || algorithm == Algorithm::kPull ||
         algorithm == Algorithm::kRegistered;
}

// Algorithms that need one island and equal counts.
constexpr bool in_island(Algorithm algorithm) { return over_windows(algorithm) || algorithm == Algorithm::kOneShot; }

// Rank r's host has fewer cores than `ranks`: waiting threads must give way to each other.
inline bool crowded(const Topology& topology, int r, int ranks) {
  return !topology.cores.empty() && topology.cores[static_cast<size_t>(r)] > 0 &&
         topology.cores[static_cast<size_t>(r)] < ranks;
}

// All ranks are on one host but do not all share memory, so they use sockets.
inline bool loopback(const Topology& topology) { return topology.one_host() && !topology.one_island(); }

}  // namespace rondo
