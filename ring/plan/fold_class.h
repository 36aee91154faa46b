#pragma once

#include "ring/base/types.h"

namespace rondo {

// Whether two algorithms give a call the same bits in a world of that size, if each has a plan for it: they fold the
// same contributions in the same order and round at the same places, or they fold nothing. Two contributions have one
// fold, whose order does not matter (docs/numerics.md). Proved by the symbolic values of their plans
// (tests/plan/fold_class_test.cc). The reverse does not hold.
bool fold_alike(Collective collective, Algorithm a, Algorithm b, int world);

// Whether such plans fold the contributions in the order of the ranks, from 0 on. The proofs of tests/plan hold it
// against the plans.
bool keeps_rank_order(Collective collective, Algorithm algorithm, int root, int world);

}  // namespace rondo
