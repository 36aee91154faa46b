#pragma once

#include <cstdint>

#include "ring/base/types.h"
#include "ring/plan/plan.h"

namespace rondo {

// All that a plan depends on.
struct PlanRequest {
  Collective collective = Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;  // not kAuto: choose.h resolves that first
  int rank = 0;
  int root = -1;      // 0 .. world-1 where collective_has_root(), else -1
  Topology topology;  // its size is the world, 1 .. 65535
  // Chunks that a link may hold at once, 1 .. 64. Exchanges of several blocks with one peer overlap that many; plans
  // that have none need 1 only (Plan::chunks_in_flight). Equal on all ranks.
  int chunks_in_flight = 1;
  // Who scales a contribution (kScale). false: the rank that folds it first; enough where the
  // factor is the same everywhere (average). true: always its own rank, before it leaves; needed where each rank has a
  // factor of its own (Op::kPremulSum). Equal on all ranks.
  bool scale_at_source = false;
  // Slices travel in a wire format: ranks that fold the same contributions fold what these are decoded as, also their
  // own. Equal on all ranks.
  bool coded = false;
};

// Whether an algorithm has a builder for this collective and topology (the same answer on every rank).
bool plan_available(Collective collective, Algorithm algorithm, const Topology& topology);

// Whether slices of such plans may travel in a wire format: all ranks end with the same bits, and a rank encodes each
// block once (verify_values() with Wire::kCoded, PlanRequest::coded). Exchanges of partial folds would encode it at
// each. Broadcasts: in the format that loses nothing, alone, so all plans over links do. Never over windows.
bool carries_wire_format(Collective collective, Algorithm algorithm, const Topology& topology);

// Blocks of the longest post of any rank, by a one-shot plan (Plan::posts); at least 1.
uint64_t most_posted_blocks(Collective collective, int world);

// The plan of one rank. Pure: equal arguments give equal plans, and the plans of all ranks fit together.
// Throws Exception(kInvalid) for a request outside the ranges above or without a builder.
Plan build_plan(const PlanRequest& request);

}  // namespace rondo
