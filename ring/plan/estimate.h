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

// Microseconds by closed form, to first order (docs/plans.md has the formulas); infinite for algorithms that the
// collective does not have, or that are never chosen. `chunks_in_flight` as in PlanRequest. No allocation.
double estimate_us(const EstimateRequest& request, const PairCosts& at, const CostModel& model, int chunks_in_flight);

}  // namespace rondo
