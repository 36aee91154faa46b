#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "ring/base/types.h"

namespace rondo {

// Facts about the shape of plans that their builders and the closed forms of their cost (estimate.cc) share.

// Blocks of a plan in which all ranks send to all at once (direct, one shot): a block a rank, or the whole buffer.
constexpr uint32_t direct_blocks(Collective collective, int world) {
  return collective_has_blocks(collective) ? static_cast<uint32_t>(world) : 1;
}

// Blocks that follow one another in each of the double trees: more fill the pipeline better, and make small calls
// smaller slices.
inline constexpr int kBlocksPerTree = 4;
// A link holds so many of them at once, if it may.
inline constexpr int kTreeBlocksInFlight = 2;

// Two hosts of equal size exchange their folds: both fold what both have. Coded, each would encode its own.
constexpr bool hosts_exchange_folds(int hosts, bool equal_sizes, bool coded) {
  return hosts == 2 && equal_sizes && !coded;
}

// One move of parallel aggregated trees (pat.cc): blocks go `distance` ranks on, those of the trees in which this rank
// is at the positions first, first + stride, .. below the world.
struct PatMove {
  int distance, first, stride;
  int blocks(int world) const { return (world - 1 - first) / stride + 1; }
};
// In the order of an all_gather. chunks_in_flight: PlanRequest's.
template <typename Visit>
void each_pat_move(int world, int chunks_in_flight, Visit visit) {
  int top = 1;  // the longest distance
  while (2 * top < world) top *= 2;
  const int together = std::min(static_cast<int>(std::bit_floor(static_cast<unsigned>(chunks_in_flight))), top);
  const int walked = 2 * top / together;  // positions of the trees that are walked in order
  for (int distance = top; distance >= walked; distance /= 2) visit(PatMove{distance, distance, 2 * distance});
  for (int w = 1; w < std::min(walked, world); ++w) visit(PatMove{w & -w, w, walked});
}

}  // namespace rondo
