#include <vector>

#include "ring/plan/builders.h"
#include "ring/plan/plan_builder.h"

// A parameter server: rank 0 folds every contribution and sends the result to everybody. Its port carries N-1 times the
// data, but all ranks together have the fewest messages: chosen where cores are fewer than ranks and data is small.
namespace rondo {
namespace {

// Contributions are folded in rank order, so any hub gives the same bits.
constexpr int kHub = 0;

void hub(PlanBuilder& b) {
  std::vector<Ref> sources(1, b.own(0));
  for (int r = 1; r < b.world(); ++r) sources.push_back(b.from_input(r, 0));
  b.wide_step(sources, b.output(0), b.to_others(0), kFinish);
}

}  // namespace

Plan build_star(const PlanRequest& request) {
  PlanBuilder b(request, 1, static_cast<uint32_t>(request.topology.world() - 1));
  if (request.rank == kHub) {
    hub(b);
  } else {
    b.send(0, kHub);
    b.recv_copy(0, kHub);
  }
  return b.take();
}

}  // namespace rondo
