#pragma once

#include <cstdint>

#include "ring/base/types.h"
#include "ring/plan/cost_model.h"

namespace rondo {

// The algorithm for a call of `bytes` (of the whole buffer, as the bench counts it): the cheapest by closed form among
// those that have a plan, within the limits of choose.cc. Deterministic, and equal on all ranks as long as the
// arguments are. Never kStar, which is for comparison, and never kAuto. scale_at_source: as in PlanRequest.
Algorithm choose(Collective collective, uint64_t bytes, const Topology& topology, bool scale_at_source = false,
                 const CostModel& model = {});

// What choose() compares: microseconds of a collective over `bytes`, to first order (docs/plans.md has the formulas);
// infinite where there is no plan.
double estimated_us(Collective collective, Algorithm algorithm, uint64_t bytes, const Topology& topology,
                    bool scale_at_source = false, const CostModel& model = {});

}  // namespace rondo
