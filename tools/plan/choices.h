#pragma once

#include <string>

#include "ring/plan/cost_model.h"

namespace rondo {

// Which algorithm is chosen, by collective, ranks and bytes, for topologies of several kinds: Markdown, as
// docs/plans.md has it. Sizes are the powers of two from 8 B to 1 GiB.
std::string choices(const CostModel& model = {});

}  // namespace rondo
