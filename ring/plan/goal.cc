#include "ring/plan/goal.h"

namespace rondo {

// Written from the definition of each collective, never from the builders: otherwise a builder's mistake would be
// proved right.
std::vector<Promise> promises(const Plan& plan) {
  const uint32_t me = static_cast<uint32_t>(plan.rank);
  std::vector<Promise> list;
  switch (plan.collective) {
    case Collective::kReduce:
      if (plan.rank != plan.root) return {};
      [[fallthrough]];
    case Collective::kAllReduce:
      for (uint32_t c = 0; c < plan.blocks; ++c) list.push_back({c, true, 0, 0});
      return list;
    case Collective::kReduceScatter:
      return {{me, true, 0, 0}};
    case Collective::kExscan:
      if (plan.rank == 0) return {};
      [[fallthrough]];
    case Collective::kScan:
      for (uint32_t c = 0; c < plan.blocks; ++c) {
        list.push_back({c, true, 0, 0, plan.collective == Collective::kScan ? plan.rank + 1 : plan.rank});
      }
      return list;
    case Collective::kGather:
      if (plan.rank != plan.root) return {};
      [[fallthrough]];
    case Collective::kAllGather:
      for (int r = 0; r < plan.world; ++r)
        list.push_back({static_cast<uint32_t>(r), false, r, static_cast<uint32_t>(r)});
      return list;
    case Collective::kBroadcast:
      for (uint32_t c = 0; c < plan.blocks; ++c) list.push_back({c, false, plan.root, c});
      return list;
    case Collective::kScatter:
      return {{me, false, plan.root, me}};
    case Collective::kAllToAll:
      for (int r = 0; r < plan.world; ++r) list.push_back({static_cast<uint32_t>(r), false, r, me});
      return list;
    case Collective::kBarrier:
      return {};
  }
  return list;
}

// Agrees with promises(), and allocates nothing.
bool output_promised(const Plan& plan, uint32_t block) {
  switch (plan.collective) {
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return block == static_cast<uint32_t>(plan.rank);
    case Collective::kReduce:
    case Collective::kGather:
      return plan.rank == plan.root && block < plan.blocks;
    case Collective::kExscan:
      return plan.rank > 0 && block < plan.blocks;
    case Collective::kBarrier:
      return false;
    default:
      return block < plan.blocks;
  }
}

bool holds_input(const Plan& plan, uint32_t block) {
  switch (plan.collective) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kReduce:
    case Collective::kScan:
    case Collective::kExscan:
    case Collective::kAllToAll:
      return block < plan.blocks;
    case Collective::kAllGather:
    case Collective::kGather:
      return block == static_cast<uint32_t>(plan.rank);
    case Collective::kBroadcast:
    case Collective::kScatter:
      return plan.rank == plan.root && block < plan.blocks;
    case Collective::kBarrier:
      return false;
  }
  return false;
}

}  // namespace rondo
