#include "ring/plan/renumber.h"

#include <algorithm>

#include "ring/base/check.h"

namespace rondo {

Plan renumbered(const Plan& plan, std::span<const int> order) {
  RONDO_CHECK(order.size() == static_cast<size_t>(plan.world), "an order has every rank once");
  const auto rank_of = [&](int position) { return position < 0 ? position : order[static_cast<size_t>(position)]; };
  // Else the blocks are shares of one buffer, which belong to no rank.
  const bool block_a_rank = plan.blocks == static_cast<uint32_t>(plan.world);
  Plan result = plan;
  result.rank = rank_of(plan.rank);
  result.root = rank_of(plan.root);
  for (int& peer : result.peers) peer = rank_of(peer);
  std::sort(result.peers.begin(), result.peers.end());
  const auto block_of = [&](uint32_t block) {
    return block_a_rank ? static_cast<uint32_t>(rank_of(static_cast<int>(block))) : block;
  };
  for (size_t position = 0; position < plan.posts.size(); ++position) {
    auto& post = result.posts[static_cast<size_t>(rank_of(static_cast<int>(position)))];
    post = plan.posts[position];
    for (uint32_t& block : post) block = block_of(block);
  }
  for (Ref& ref : result.refs) {
    if (is_remote(ref)) ref.peer = static_cast<uint16_t>(rank_of(ref.peer));
    // Scratch blocks are slot * blocks + block: the slot stays.
    const uint32_t block = ref.block % plan.blocks;
    ref.block = ref.block - block + block_of(block);
  }
  return result;
}

}  // namespace rondo
