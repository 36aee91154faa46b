#include "ring/engine/device/stream_plans.h"

#include "ring/plan/build.h"

namespace rondo {

bool StreamPlans::has(Collective collective) const {
  return plan_available(collective, Algorithm::kRegistered, topology_);
}

const StreamPlans::Entry& StreamPlans::get(Collective collective, int root) {
  const auto known = entries_.find({collective, root});
  if (known != entries_.end()) return known->second;
  PlanRequest request;
  request.collective = collective;
  request.algorithm = Algorithm::kRegistered;
  request.topology = topology_;
  request.root = root;
  std::vector<Plan> plans;
  for (request.rank = 0; request.rank < topology_.world(); ++request.rank) plans.push_back(build_plan(request));
  Entry entry;
  entry.touched = touched_by_others(plans, rank_);
  entry.plan = plans[static_cast<size_t>(rank_)];
  entry.program = lower(entry.plan);
  return entries_.emplace(std::pair(collective, root), std::move(entry)).first->second;
}

}  // namespace rondo
