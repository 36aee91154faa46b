#pragma once

#include <string>

#include "ring/plan/cost_model.h"

namespace rondo {

// Which algorithm is chosen, by ranks and bytes: Markdown. Sizes are the powers of two from 8 B to 1 GiB; an algorithm
// stands with the last size that it is chosen for, the last one for all above.
std::string choices(const CostModel& model = {});

}  // namespace rondo
