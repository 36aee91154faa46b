#pragma once

#include <string>
#include <vector>

#include "ring/plan/build.h"
#include "ring/plan/simulate.h"

namespace CLI {
class App;
}

namespace rondo {

// The command line's part that says which plans. Defaults are those of --help.
struct PlanOptions {
  std::string collective = "all_reduce", algorithm = "ring";
  int world = 0;           // 0: the sum of hosts, or 4
  std::vector<int> hosts;  // ranks of each host, in order; empty: one host
  int root = 0;
  bool share_memory = false;
};

// --collective, --algorithm, --world, --hosts, --root, --share-memory; app.parse() refuses names and numbers that no
// plan has.
// Names the program in messages, and lets --world and --hosts have at most `most` ranks.
void declare_plan_options(CLI::App& app, PlanOptions& options, int most);

// Rank 0's request. Throws Exception(kInvalid) if hosts and world disagree, make more ranks than `most`, or are not for
// the algorithm.
PlanRequest request_of(const PlanOptions& options, int most);

// The plans of all ranks. Throws as build_plan().
std::vector<Plan> plans_of_all(PlanRequest request);

// A call of `bytes` by these plans and the default cost model.
SimulationRequest simulation_of(const std::vector<Plan>& plans, const Topology& topology, uint64_t bytes);

}  // namespace rondo
