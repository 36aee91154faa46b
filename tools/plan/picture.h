#pragma once

#include <span>
#include <string>

#include "ring/plan/plan.h"

namespace rondo {

// Who sends which block to whom at which step of lane 0: a row a step, a column a rank. "c2>3" sends block 2 to rank 3;
// "+" before it: folded with this rank's own first; "=" stores the complete block, "." stores what came.
std::string picture(std::span<const Plan> plans);

}  // namespace rondo
