#pragma once

#include "ring/base/types.h"
#include "ring/plan/plan.h"

namespace rondo {

struct PlanRequest {
  Collective collective = Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;  // not kAuto: choose.h resolves that first
  int rank = 0;
  int root = -1;      // 0 .. world-1 where collective_has_root(), else -1
  int lanes = 1;      // 1 .. 16
  Topology topology;  // its size is the world, 1 .. 65535
};

// Whether an algorithm has a builder for this collective and topology (the same answer on every rank).
bool plan_available(Collective collective, Algorithm algorithm, const Topology& topology);

// The plan of one rank. Pure: equal arguments give equal plans, and the plans of all ranks fit together.
// Throws Exception(kInvalid) for a request outside the ranges above or without a builder.
Plan build_plan(const PlanRequest& request);

}  // namespace rondo
