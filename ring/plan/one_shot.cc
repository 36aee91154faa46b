#include <vector>

#include "ring/plan/builders.h"
#include "ring/plan/plan_builder.h"

// Small collectives inside an island, in one exchange: every rank posts what others need where all of them can read it,
// and then takes what it needs from all posts. Everybody hears from everybody once in each round, so that two places
// for a rank's post, used in turn, are enough: a rank that writes round k has heard from all in round k - 1, and all
// had read round k - 2 before they said so. No rank touches another's buffers, so a rank that has all that it takes may
// return; what it posts then takes other places (transport/island/cell_ring.h).
namespace rondo {
namespace {

void barrier(PlanBuilder& b) {
  const std::vector<Ref> others = b.to_others(0);
  b.step({}, others, kEachRound);
  b.step(others, {}, kEachRound);
}

// Blocks of other ranks.
void post_blocks_of_others(PlanBuilder& b) {
  for (int r = 0; r < b.world(); ++r) {
    const auto c = static_cast<uint32_t>(r);
    if (r != b.rank()) b.step({b.input(c)}, {b.posted(b.rank(), c)});
  }
}

// Every contribution to block c, in rank order.
void fold_all(PlanBuilder& b, uint32_t c) {
  std::vector<Ref> contributions;
  for (int r = 0; r < b.world(); ++r) contributions.push_back(r == b.rank() ? b.own(c) : b.posted_input(r, c));
  const Ref output = b.output(c);
  b.step(contributions, {&output, 1}, kFinish);
}

void add_lane(PlanBuilder& b) {
  const auto me = static_cast<uint32_t>(b.rank());
  const bool is_root = b.rank() == b.root();
  switch (b.collective()) {
    case Collective::kAllReduce:
      b.step({b.input(0)}, {b.posted(b.rank(), 0)});
      barrier(b);
      return fold_all(b, 0);
    case Collective::kReduceScatter:
      post_blocks_of_others(b);
      barrier(b);
      return fold_all(b, me);
    case Collective::kAllGather:
      b.step({b.input(me)}, {b.posted(b.rank(), me), b.output(me)});
      barrier(b);
      for (int r = 0; r < b.world(); ++r) {
        const auto c = static_cast<uint32_t>(r);
        if (r != b.rank()) b.step({b.posted(r, c)}, {b.output(c)});
      }
      return;
    case Collective::kAllToAll:
      post_blocks_of_others(b);
      b.copy(me, me);
      barrier(b);
      for (int r = 0; r < b.world(); ++r) {
        if (r != b.rank()) b.step({b.posted(r, me)}, {b.output(static_cast<uint32_t>(r))});
      }
      return;
    case Collective::kBroadcast:
      if (is_root) b.step({b.input(0)}, {b.posted(b.rank(), 0), b.output(0)});
      barrier(b);
      if (!is_root) b.step({b.posted(b.root(), 0)}, {b.output(0)});
      return;
    case Collective::kReduce:
      if (!is_root) b.step({b.input(0)}, {b.posted(b.rank(), 0)});
      barrier(b);
      if (is_root) fold_all(b, 0);
      return;
    case Collective::kGather:
      is_root ? b.copy(me, me) : b.step({b.input(me)}, {b.posted(b.rank(), me)});
      barrier(b);
      for (int r = 0; r < b.world() && is_root; ++r) {
        const auto c = static_cast<uint32_t>(r);
        if (c != me) b.step({b.posted(r, c)}, {b.output(c)});
      }
      return;
    case Collective::kScatter:
      if (is_root) {
        post_blocks_of_others(b);
        b.copy(me, me);
      }
      barrier(b);
      if (!is_root) b.step({b.posted(b.root(), me)}, {b.output(me)});
      return;
    case Collective::kBarrier:
      return barrier(b);
  }
}

}  // namespace

Plan build_one_shot(const PlanRequest& request) {
  const Collective c = request.collective;
  const auto world = static_cast<uint32_t>(request.topology.world());
  const bool blocks_of_ranks = c == Collective::kReduceScatter || c == Collective::kAllGather ||
                               c == Collective::kAllToAll || c == Collective::kGather || c == Collective::kScatter;
  PlanBuilder b(request, blocks_of_ranks ? world : 1, world - 1);
  b.begin_lane();  // one exchange; more lanes would be more exchanges
  add_lane(b);
  return b.take();
}

}  // namespace rondo
