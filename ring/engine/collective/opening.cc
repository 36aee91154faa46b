#include "ring/engine/collective/opening.h"

#include <algorithm>
#include <vector>

namespace rondo {

Plan opening_plan(int rank, int world, int lanes) {
  const auto next = static_cast<uint16_t>((rank + 1) % world);
  const auto previous = static_cast<uint16_t>((rank + world - 1) % world);
  std::vector<uint16_t> neighbors{next};
  if (previous != next) neighbors.push_back(previous);
  Plan plan;
  plan.collective = Collective::kBarrier;
  plan.rank = rank;
  plan.world = world;
  plan.max_peers = static_cast<uint32_t>(neighbors.size());
  plan.peers.assign(neighbors.begin(), neighbors.end());
  std::sort(plan.peers.begin(), plan.peers.end());
  const auto count = static_cast<uint8_t>(neighbors.size());
  for (int i = 0; i < 2; ++i) {
    for (const uint16_t peer : neighbors) plan.refs.push_back({Space::kMailbox, 0, peer, 0});
  }
  plan.steps.push_back({0, kNoStep, 0, count, 0});
  plan.steps.push_back({count, kNoStep, count, 0, 0});
  plan.lanes.assign(static_cast<size_t>(lanes), Lane{0, 2});
  return plan;
}

}  // namespace rondo
