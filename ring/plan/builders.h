#pragma once

#include "ring/plan/build.h"
#include "ring/plan/plan.h"

namespace rondo {

// One file a family. Each takes a checked request (build.cc) for a world of at least 2 and a collective that it has.
Plan build_ring(const PlanRequest& request);              // every collective
Plan build_direct(const PlanRequest& request);            // every collective, up to kDirectWorlds ranks
Plan build_doubling(const PlanRequest& request);          // all_reduce
Plan build_tree(const PlanRequest& request);              // all_reduce, broadcast, reduce
Plan build_hierarchical(const PlanRequest& request);      // all_reduce
Plan build_star(const PlanRequest& request);              // all_reduce
Plan build_halving_doubling(const PlanRequest& request);  // all_reduce, reduce_scatter, all_gather
Plan build_double_tree(const PlanRequest& request);       // all_reduce, broadcast, reduce
Plan build_pat(const PlanRequest& request);               // reduce_scatter, all_gather
Plan build_window(const PlanRequest& request);            // staged, pull, registered: all but barrier and scans

Plan build_one_shot(const PlanRequest& request);  // every collective

// The largest world of plans that exchange all with all. There a fold of all contributions and a send to all others
// are one step each, whose refs are at most kMaxStepSources and kMaxStepTargets.
inline constexpr int kDirectWorlds = 64;

// Peers that a rank of a ring of n ranks has.
constexpr uint32_t ring_max_peers(int n) { return n < 2 ? 0 : n == 2 ? 1 : 2; }

}  // namespace rondo
