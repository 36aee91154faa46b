#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// The names in a Slurm node list, in order: "n[1-3,07],gpu-[a-b]" style brackets of numbers, as in SLURM_STEP_NODELIST.
// At most 65,536. Throws Exception(kInvalid) on anything else.
std::vector<std::string> expand_node_list(std::string_view list);

// Tasks of each node from SLURM_TASKS_PER_NODE's form, "2(x3),1" being {2, 2, 2, 1}. Throws Exception(kInvalid).
std::vector<int> expand_tasks_per_node(std::string_view list);

}  // namespace rondo
