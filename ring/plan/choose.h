#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ring/base/types.h"
#include "ring/plan/cost_model.h"
#include "ring/plan/pair_costs.h"

namespace rondo {

// What may be chosen, in the order in which algorithms of equal cost are preferred. kWindow stands for its parts.
inline constexpr Algorithm kChosen[] = {Algorithm::kRing,
                                        Algorithm::kDirect,
                                        Algorithm::kRecursiveDoubling,
                                        Algorithm::kTree,
                                        Algorithm::kHierarchical,
                                        Algorithm::kPat,
                                        Algorithm::kHalvingDoubling,
                                        Algorithm::kDoubleTree,
                                        Algorithm::kStar,
                                        Algorithm::kWindow,
                                        Algorithm::kOneShot};

// The cheapest of these for which usable(algorithm); us(algorithm) is its cost. nullopt: none is usable.
template <typename Usable, typename Us>
std::optional<Algorithm> cheapest(Usable usable, Us us) {
  constexpr double kBetter = 1 - 1e-6;  // equal but for rounding is equal
  std::optional<Algorithm> best;
  double least_us = 0;
  for (const Algorithm algorithm : kChosen) {
    if (!usable(algorithm)) continue;
    const double cost_us = us(algorithm);
    if (best && !(cost_us < least_us * kBetter)) continue;
    best = algorithm;
    least_us = cost_us;
  }
  return best;
}

// Chooses for one group. Deterministic, and equal on all ranks as long as the arguments are.
class Chooser {
 public:
  explicit Chooser(const Topology& topology, const CostModel& model = {}, int chunks_in_flight = 4);

  // The algorithm for a call of `bytes` (of the whole buffer, as the bench counts it): the cheapest by closed form
  // among those that have a plan, within the limits of choose.cc. kStar only for a small all_reduce by more ranks than
  // cores. scale_at_source: as in PlanRequest. even: every rank has a block of the same size, which plans over windows
  // need. No allocation.
  Algorithm choose(Collective collective, uint64_t bytes, bool scale_at_source = false, bool even = true) const;

  // Which folds may take the place of others.
  enum class Folds : uint8_t { kAlike, kAny };
  // What choose() chooses for an even call, and what may be faster than the model thinks: at most kMostAlternatives
  // algorithms within its limits that fold alike (fold_class.h) and are estimated at three times the least at most, the
  // cheapest first. kWindow stands in it as what runs for buffers of which some are not registered: kOneShot up to 1
  // MiB, kStaged, and above kPostBytes kPull. Of algorithms that are the same exchange between two ranks there is one.
  static constexpr size_t kMostAlternatives = 5;
  std::vector<Algorithm> alternatives(Collective collective, uint64_t bytes, Folds folds) const;

  // What choose() compares, in microseconds; infinite where there is no plan, or no estimate. fold_factor:
  // EstimateRequest's.
  double estimated_us(Collective collective, Algorithm algorithm, uint64_t bytes, bool scale_at_source = false,
                      double fold_factor = 1) const;
  // Whether links keep what these estimates promise.
  bool within_limits(Collective collective, Algorithm algorithm, uint64_t bytes) const;

 private:
  Topology topology_;
  CostModel model_;
  int chunks_in_flight_;
  PairCosts pair_costs_;
};

}  // namespace rondo
