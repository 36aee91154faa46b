#include "ring/plan/renumber.h"

#include <algorithm>

#include "ring/base/check.h"

namespace rondo {

Plan renumbered(const Plan& plan, std::span<const int> order) {
  RONDO_CHECK(order.size() == static_cast<size_t>(plan.world), "an order has every rank once");
  const auto rank_of = [&](int place) { return place < 0 ? place : order[static_cast<size_t>(place)]; };
  const bool block_a_rank = plan.chunks == static_cast<uint32_t>(plan.world);
  Plan result = plan;
  result.rank = rank_of(plan.rank);
  result.root = rank_of(plan.root);
  for (int& peer : result.peers) peer = rank_of(peer);
  std::sort(result.peers.begin(), result.peers.end());
  for (Ref& ref : result.refs) {
    if (is_remote(ref)) ref.peer = static_cast<uint16_t>(rank_of(ref.peer));
    if (!block_a_rank) continue;
    const uint32_t block = ref.chunk % plan.chunks;
    ref.chunk = ref.chunk - block + static_cast<uint32_t>(rank_of(static_cast<int>(block)));
  }
  return result;
}

}  // namespace rondo
