#include <vector>

#include "ring/plan/builders.h"
#include "ring/plan/plan_builder.h"

namespace rondo {
namespace {

// A parameter server: the hub folds every contribution and sends the result to everybody. The hub's port carries N-1
// times the data, whatever the world: for comparison, never chosen.
void hub(PlanBuilder& b, Collective collective) {
  std::vector<Ref> sources, sends;
  for (int r = 0; r < b.world(); ++r) {
    if (r == b.rank()) {
      sources.push_back(b.own(0));
    } else {
      if (collective_reduces(collective)) sources.push_back(b.from_input(r, 0));
      if (collective != Collective::kReduce) sends.push_back(b.to(r, 0));
    }
  }
  b.wide_step(sources, b.output(0), sends, collective_reduces(collective) ? uint16_t{kFinish} : uint16_t{0});
}

void spoke(PlanBuilder& b, Collective collective, int hub_rank) {
  if (collective_reduces(collective)) b.send(0, hub_rank);
  if (collective != Collective::kReduce) b.recv_copy(0, hub_rank);
}

}  // namespace

Plan build_star(const PlanRequest& request) {
  const int hub_rank = request.collective == Collective::kAllReduce ? 0 : request.root;
  PlanBuilder b(request, 1, static_cast<uint32_t>(request.topology.world() - 1));
  for (int lane = 0; lane < request.lanes; ++lane) {
    b.begin_lane();
    if (request.rank == hub_rank) {
      hub(b, request.collective);
    } else {
      spoke(b, request.collective, hub_rank);
    }
  }
  return b.take();
}

}  // namespace rondo
