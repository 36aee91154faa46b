#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// The first name of a Slurm node list ("n[1-3,07],gpu-[1-2]", as in SLURM_STEP_NODELIST), where rank 0 runs: "n1".
// Throws Exception(kInvalid) where the list is malformed, also behind that name.
std::string first_node(std::string_view list);

// Tasks of each node from SLURM_TASKS_PER_NODE's form, "2(x3),1" being {2, 2, 2, 1}. Throws Exception(kInvalid).
std::vector<int> expand_tasks_per_node(std::string_view list);

}  // namespace rondo
