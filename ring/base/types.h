#pragma once

#include <algorithm>
#include <cstddef>

#include "rondo/collective.h"
#include "rondo/topology.h"

// What the planner and the engine know of collectives, algorithms and topologies, beyond the public enumerations.

namespace rondo {

// The input of a collective, or its output.
struct CollectiveBuffer {
  bool blocks = false;  // a block for each rank; else the buffer is one block
  bool rooted = false;  // of the root alone: that of other ranks is neither read nor written
};
struct CollectiveFacts {
  bool reduces = false;
  CollectiveBuffer input{}, output{};
};
// By Collective, a byte: an unknown one has nothing.
inline constexpr CollectiveFacts kCollectiveFacts[256] = {
    {.reduces = true},                                        // all_reduce
    {.reduces = true, .input = {.blocks = true}},             // reduce_scatter
    {.output = {.blocks = true}},                             // all_gather
    {.input = {.rooted = true}},                              // broadcast
    {.reduces = true, .output = {.rooted = true}},            // reduce
    {.output = {.blocks = true, .rooted = true}},             // gather
    {.input = {.blocks = true, .rooted = true}},              // scatter
    {.input = {.blocks = true}, .output = {.blocks = true}},  // all_to_all
    {},                                                       // barrier
    {.reduces = true},                                        // scan
    {.reduces = true},                                        // exscan
};
constexpr const CollectiveFacts& facts_of(Collective c) { return kCollectiveFacts[static_cast<int>(c)]; }

// Each rank gets the fold of the ranks before it, so their order matters.
constexpr bool collective_scans(Collective c) { return c == Collective::kScan || c == Collective::kExscan; }
constexpr bool collective_reduces(Collective c) { return kCollectiveFacts[static_cast<int>(c)].reduces; }
constexpr bool collective_has_root(Collective c) {
  const CollectiveFacts& facts = kCollectiveFacts[static_cast<int>(c)];
  return facts.input.rooted || facts.output.rooted;
}
// A buffer has a block for each rank.
constexpr bool collective_has_blocks(Collective c) {
  const CollectiveFacts& facts = kCollectiveFacts[static_cast<int>(c)];
  return facts.input.blocks || facts.output.blocks;
}
// One buffer of every rank has them, and the other one block: all ranks know all counts.
constexpr bool collective_shares_blocks(Collective c) {
  return facts_of(c).input.blocks != facts_of(c).output.blocks && !collective_has_root(c);
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
