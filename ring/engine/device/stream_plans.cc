#include "ring/engine/device/stream_plans.h"

#include <algorithm>
#include <utility>

#include "ring/plan/build.h"
#include "ring/plan/renumber.h"

namespace rondo {

std::vector<int> neighbors(const std::vector<int>& order, int rank) {
  const auto world = order.size();
  const auto at = static_cast<size_t>(std::find(order.begin(), order.end(), rank) - order.begin());
  std::vector<int> both{order[(at + world - 1) % world], order[(at + 1) % world]};
  if (both[0] == both[1]) both.pop_back();
  std::erase(both, rank);
  return both;
}

// The plans of all ranks, in rank order. A ring is built over places in the ring, then renumbered to ranks.
std::vector<Plan> StreamPlans::build(Collective collective, Algorithm algorithm, int root) const {
  const bool turned = algorithm == Algorithm::kRing;
  PlanRequest request;
  request.collective = collective;
  request.algorithm = algorithm;
  request.topology = topology_;
  request.root = root;
  if (turned && root >= 0) {
    request.root = static_cast<int>(std::find(order_.begin(), order_.end(), root) - order_.begin());
  }
  std::vector<Plan> plans(static_cast<size_t>(topology_.world()));
  for (request.rank = 0; request.rank < topology_.world(); ++request.rank) {
    Plan plan = build_plan(request);
    if (turned) plan = renumbered(plan, order_);
    plans[static_cast<size_t>(plan.rank)] = std::move(plan);
  }
  return plans;
}

const StreamPlans::Entry& StreamPlans::get(Collective collective, Algorithm algorithm, int root) {
  const Key key{collective, algorithm, root};
  if (const auto found = entries_.find(key); found != entries_.end()) return found->second;
  const std::vector<Plan> plans = build(collective, algorithm, root);
  Entry entry;
  for (const Plan& plan : plans) {
    const Touched touched = touched_by_others(plans, plan.rank);
    const size_t blocks = Touched::all(touched.input).size() + Touched::all(touched.output).size();
    entry.staged_blocks = std::max(entry.staged_blocks, static_cast<uint32_t>(blocks));
    if (plan.rank == rank_) entry.touched = touched;
    StreamProgram program = lower(plan);
    entry.most_messages = std::max(entry.most_messages, program.messages);
    if (plan.rank == rank_) entry.program = std::move(program);
  }
  entry.plan = plans[static_cast<size_t>(rank_)];
  if (!complete_) entry.program.entries[0].peers = entry.program.entries[1].peers = neighbors(order_, rank_);
  return entries_.emplace(key, std::move(entry)).first->second;
}

}  // namespace rondo
