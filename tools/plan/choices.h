#pragma once

#include <string>

#include "ring/plan/cost_model.h"

namespace rondo {

// Which algorithm is chosen, by ranks and bytes: Markdown. Sizes are the powers of two from 8 B to 1 GiB; an algorithm
// stands with the last size that it is chosen for, the last one for all above.
// all_reduce for three kinds of topologies, as docs/plans.md has it.
std::string all_reduce_choices(const CostModel& model = {});
// That, then every collective for more of them.
std::string choices(const CostModel& model = {});

}  // namespace rondo
