#include "ring/plan/swing.h"

#include "ring/plan/builders.h"
#include "ring/plan/exchanges.h"
#include "ring/plan/plan_builder.h"

namespace rondo {

// Only with as many blocks as ranks, each folded by one rank: in the variant that exchanges whole buffers the sets of
// ranks that have been folded overlap from world 8 on without being equal, so every rank would fold in another order.
Plan build_swing(const PlanRequest& request) {
  const int world = request.topology.world();
  const Exchanges exchanges(world, [world](int rank, int k) { return swing_partner(world, rank, k); });
  PlanBuilder b(request, static_cast<uint32_t>(world), exchanges.fan());
  for (int lane = 0; lane < request.lanes; ++lane) {
    b.begin_lane();
    exchanges.all_reduce(b, request.ahead);
  }
  return b.take();
}

}  // namespace rondo
