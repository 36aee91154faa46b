#include "ring/plan/builders.h"
#include "ring/plan/exchanges.h"
#include "ring/plan/plan_builder.h"

namespace rondo {

// Recursive halving, then recursive doubling (Rabenseifner, "Optimization of collective reduction operations", 2004):
// log2 N exchanges each, which move as many bytes as the ring does in N-1 steps each. The nearest rank gets the most.
Plan build_halving_doubling(const PlanRequest& request) {
  const int world = request.topology.world();
  const Exchanges exchanges(world, [](int member, int k) { return member ^ (1 << k); });
  const bool by_rank = request.collective != Collective::kAllReduce;
  PlanBuilder b(request, static_cast<uint32_t>(by_rank ? world : exchanges.members()), exchanges.fan());
  for (int lane = 0; lane < request.lanes; ++lane) {
    b.begin_lane();
    switch (request.collective) {
      case Collective::kReduceScatter:
        exchanges.reduce_scatter(b, request.ahead);
        break;
      case Collective::kAllGather:
        exchanges.all_gather(b, request.ahead);
        break;
      default:
        exchanges.all_reduce(b, request.ahead);
        break;
    }
  }
  return b.take();
}

}  // namespace rondo
