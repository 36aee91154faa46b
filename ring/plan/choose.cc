#include "ring/plan/choose.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ring/plan/build.h"
#include "ring/plan/estimate.h"
#include "ring/plan/fold_class.h"
#include "ring/plan/layout.h"

namespace rondo {
namespace {

// Past these the closed forms promise what links do not keep. Direct exchanges open a link a pair, whose mailboxes grow
// small, and N-1 senders meet at one receiver: up to 64 KiB a pair, about what a socket takes in one call. (Of two
// ranks there is one sender.) Doubling and trees send a whole buffer at every level, in slices the size of a chunk.
constexpr uint64_t kDirectPairBytes = 64 * 1024;
// Where each pair has a block of its own, those of several slices arrive mixed, and a receiver takes them rank by rank:
// up to one slice (ring/engine/run/slicing.cc).
constexpr uint64_t kDirectBlockBytes = 16 * 1024;
constexpr uint64_t kWholeBufferBytes = 1024 * 1024;
// Up to here a star competes for the all_reduces over loopback of more ranks than cores: beyond, halving is as fast
// (docs/tuning.md, "The cost model").
constexpr uint64_t kStarBytes = 64 * 1024;

// Up to here a one-shot exchange is as fast as any buffers can be. Above, registered buffers gain more from the barrier
// than it costs; there the window plans come to one shot as well, up to kPostBytes.
constexpr uint64_t kOneShotBytes = 8 * 1024;

// Up to here, in posts one after the other, one shot may be faster than what folds only its share
// (docs/tuning.md, "One shot").
constexpr uint64_t kTriedPostBytes = 1024 * 1024;

// Partial folds are kept in scratch, a chunk of each rank's block: 256 ranks' are 64 MiB with chunks of 256 KiB.
constexpr int kScratchWorlds = 256;

// What the model may be wrong by.
constexpr double kMostTimesLeast = 3;

// Between two ranks these are a ring's halves, or a direct exchange.
bool same_for_two(Algorithm algorithm) {
  return algorithm == Algorithm::kHalvingDoubling || algorithm == Algorithm::kPat ||
         algorithm == Algorithm::kRecursiveDoubling || algorithm == Algorithm::kTree ||
         algorithm == Algorithm::kDoubleTree || algorithm == Algorithm::kStar;
}

}  // namespace

Chooser::Chooser(const Topology& topology, const CostModel& model, int chunks_in_flight)
    : topology_(topology), model_(model), chunks_in_flight_(chunks_in_flight), pair_costs_(topology, model) {}

bool Chooser::within_limits(Collective collective, Algorithm algorithm, uint64_t bytes) const {
  const uint64_t world = static_cast<uint64_t>(pair_costs_.world);
  switch (algorithm) {
    case Algorithm::kDirect:
      if (collective_shares_blocks(collective)) return bytes / world <= kDirectBlockBytes;
      return bytes <= (world == 2 ? kWholeBufferBytes : kDirectPairBytes);
    case Algorithm::kRecursiveDoubling:
    case Algorithm::kTree:
      return bytes <= kWholeBufferBytes;
    case Algorithm::kHierarchical:
      return pair_costs_.hosts > 1 && pair_costs_.largest_host > 1;
    case Algorithm::kStar:
      return pair_costs_.crowded_cores > 0 && bytes <= kStarBytes;
    case Algorithm::kOneShot:
      return bytes <= kOneShotBytes;
    case Algorithm::kHalvingDoubling:
    case Algorithm::kPat:
      return collective != Collective::kReduceScatter || pair_costs_.world <= kScratchWorlds;
    default:
      return true;
  }
}

double Chooser::estimated_us(Collective collective, Algorithm algorithm, uint64_t bytes, bool scale_at_source,
                             double fold_factor) const {
  if (!plan_available(collective, algorithm, topology_)) return std::numeric_limits<double>::infinity();
  return estimate_us({collective, algorithm, bytes, scale_at_source, fold_factor}, pair_costs_, model_,
                     chunks_in_flight_);
}

Algorithm Chooser::choose(Collective collective, uint64_t bytes, bool scale_at_source, bool even) const {
  const auto usable = [&](Algorithm algorithm) {
    return within_limits(collective, algorithm, bytes) && (even || !in_island(algorithm));
  };
  const auto us = [&](Algorithm algorithm) { return estimated_us(collective, algorithm, bytes, scale_at_source); };
  return *cheapest(usable, us);  // a ring is always usable
}

std::vector<Algorithm> Chooser::alternatives(Collective collective, uint64_t bytes, Folds folds) const {
  const Algorithm best = choose(collective, bytes);
  // Infinite where the best has no estimate: then all with a finite one are candidates.
  const double most = kMostTimesLeast * estimated_us(collective, best, bytes);
  // By estimate; what runs for kWindow in the order in which it is taken without times.
  std::vector<std::pair<double, Algorithm>> found;
  const auto consider = [&](Algorithm algorithm, double us) {
    const bool alike = folds == Folds::kAny || fold_alike(collective, best, algorithm, pair_costs_.world);
    if (alike && std::isfinite(us) && us <= most) found.emplace_back(us, algorithm);
  };
  const double window = estimated_us(collective, Algorithm::kWindow, bytes);
  if (bytes <= kTriedPostBytes) consider(Algorithm::kOneShot, window);
  consider(Algorithm::kStaged, window);
  if (bytes > kPostBytes) consider(Algorithm::kPull, window);
  // From 1: 0 is kAuto. Algorithms inside an island were considered as kWindow above.
  for (int i = 1; i < kAlgorithms; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    if (in_island(algorithm) || !within_limits(collective, algorithm, bytes)) continue;
    if (algorithm != best && pair_costs_.world == 2 && same_for_two(algorithm)) continue;
    consider(algorithm, estimated_us(collective, algorithm, bytes));
  }
  const auto by_estimate = [](const auto& one, const auto& other) { return one.first < other.first; };
  std::stable_sort(found.begin(), found.end(), by_estimate);
  std::vector<Algorithm> result;
  for (const auto& [us, algorithm] : found) {
    if (result.size() < kMostAlternatives) result.push_back(algorithm);
  }
  return result;
}

}  // namespace rondo
