#include "ring/plan/cost_model.h"

#include <algorithm>

namespace rondo {

PairKind pair_kind(const Topology& topology, int a, int b) {
  if (topology.share_memory(a, b)) return PairKind::kMemory;
  const bool one_host = topology.host[static_cast<size_t>(a)] == topology.host[static_cast<size_t>(b)];
  return one_host ? PairKind::kLoopback : PairKind::kNetwork;
}

PairCost dearer(const PairCost& a, const PairCost& b) {
  return {std::max(a.alpha_us, b.alpha_us), std::max(a.beta_us_per_byte, b.beta_us_per_byte),
          std::max(a.message_us, b.message_us)};
}

}  // namespace rondo
