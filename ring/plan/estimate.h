#pragma once

#include <cstdint>

#include "ring/base/types.h"
#include "ring/plan/cost_model.h"
#include "ring/plan/pair_costs.h"

namespace rondo {

struct EstimateRequest {
  Collective collective = Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;
  uint64_t bytes = 0;  // of the whole buffer, as the bench counts it
  bool scale_at_source = false;
  double fold_factor = 1;  // of coded slices, more: how many times gamma a byte costs
};

// Up to here a star competes for the all_reduces over loopback of more ranks than cores: beyond, halving is as fast
// (docs/tuning.md, "The cost model").
inline constexpr uint64_t kStarBytes = 64 * 1024;

// Bytes that a rank posts at most in one round (ring/engine/island/post_board.h). Up to here a collective over windows
// that has no root goes by posts (one shot) instead.
inline constexpr uint64_t kPostBytes = 64 * 1024;
// Blocks of the longest post of any rank, by a one-shot plan.
constexpr uint64_t most_posted_blocks(Collective collective, int world) {
  const bool of_others = collective == Collective::kReduceScatter || collective == Collective::kAllToAll ||
                         collective == Collective::kScatter;
  return of_others && world > 2 ? static_cast<uint64_t>(world - 1) : 1;
}

// Microseconds by closed form, to first order (docs/plans.md has the formulas); infinite for algorithms that the
// collective does not have, or that are never chosen. `chunks_in_flight` as in PlanRequest. No allocation.
double estimate_us(const EstimateRequest& request, const PairCosts& at, double gamma_us_per_byte, int chunks_in_flight);

}  // namespace rondo
