#include "ring/engine/route/plan_cache.h"

#include "ring/plan/build.h"

namespace rondo {

PlanCache::PlanCache(int rank, Topology topology, const Config& config)
    : rank_(rank), topology_(std::move(topology)), chunks_in_flight_(static_cast<int>(config.slices_per_chunk)) {}

std::shared_ptr<const Plan> PlanCache::get(const CheckedCall& call, Algorithm algorithm) {
  // The key has all that a plan depends on beside the communicator: neither counts nor addresses are in a plan.
  std::shared_ptr<const Plan>& plan =
      plans_[{call.collective, algorithm, call.root, call.scales_at_source(), call.coded()}];
  if (plan) return plan;
  PlanRequest request;
  request.collective = call.collective;
  request.algorithm = algorithm;
  request.rank = rank_;
  request.root = call.root;
  request.chunks_in_flight = chunks_in_flight_;
  request.topology = topology_;
  request.scale_at_source = call.scales_at_source();
  request.coded = call.coded();
  plan = std::make_shared<const Plan>(build_plan(request));
  return plan;
}

std::shared_ptr<const Plan> PlanCache::gather(Algorithm algorithm) {
  CheckedCall call;
  call.collective = Collective::kAllGather;
  return get(call, algorithm);
}

}  // namespace rondo
