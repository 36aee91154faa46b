#include "ring/plan/builders.h"
#include "ring/plan/exchanges.h"
#include "ring/plan/plan_builder.h"

namespace rondo {
namespace {

// Ranks stand on a ring, and the distances of the exchanges are 1, -1, 3, -5, 11, ..: (1 - (-2)^(k+1)) / 3, for odd
// ranks the other way. They are all odd, so that an even rank always meets an odd one, and they are shorter than the
// powers of two (De Sensi, Bonato, Saam, Hoefler, "Swing: short-cutting rings for higher bandwidth allreduce", 2024).
int partner(int world, int rank, int k) {
  int power = -2;
  for (int i = 0; i < k; ++i) power *= -2;
  const int distance = (1 - power) / 3;
  return ((rank % 2 == 0 ? rank + distance : rank - distance) % world + world) % world;
}

}  // namespace

// Only with as many blocks as ranks, each folded by one rank: in the variant that exchanges whole buffers the sets of
// ranks that have been folded overlap from world 8 on without being equal, so every rank would fold in another order.
Plan build_swing(const PlanRequest& request) {
  const int world = request.topology.world();
  const Exchanges exchanges(world, [world](int rank, int k) { return partner(world, rank, k); });
  PlanBuilder b(request, static_cast<uint32_t>(world), exchanges.fan());
  for (int lane = 0; lane < request.lanes; ++lane) {
    b.begin_lane();
    exchanges.all_reduce(b, request.ahead);
  }
  return b.take();
}

}  // namespace rondo
