#pragma once

#include <span>

#include "ring/plan/plan.h"

namespace rondo {

// A plan that was built for positions in an order of the ranks, as the plan of the rank there: order[position] is a
// rank. Blocks that belong to a rank go with it. Pure. Requires a permutation of 0 .. world-1.
Plan renumbered(const Plan& plan, std::span<const int> order);

}  // namespace rondo
