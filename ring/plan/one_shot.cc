#include <vector>

#include "ring/plan/builders.h"
#include "ring/plan/plan_builder.h"
#include "ring/plan/shapes.h"

// Small collectives inside an island, in one exchange: every rank posts what others need where all of them can read it,
// and then takes what it needs from all posts. Everybody hears from everybody once in each round, so that two places
// for a rank's post, used in turn, are enough: a rank that writes round k has heard from all in round k - 1, and all
// had read round k - 2 before they said so. No rank touches another's buffers, so a rank that has all that it takes may
// return; what it posts then takes other places (transport/island/cell_ring.h).
namespace rondo {
namespace {

// What a rank posts: all that any other rank needs of its input, and nothing else. The root of a reduce or gather and
// the last rank of a scan post nothing, since nobody folds or stores their input but they.
std::vector<uint32_t> posted_blocks(const PlanBuilder& b, int rank) {
  const auto own = static_cast<uint32_t>(rank);
  std::vector<uint32_t> of_others;
  for (uint32_t c = 0; c < static_cast<uint32_t>(b.world()); ++c) {
    if (c != own) of_others.push_back(c);
  }
  switch (b.collective()) {
    case Collective::kAllReduce:
      return {0};
    case Collective::kAllGather:
      return {own};
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return of_others;
    case Collective::kBroadcast:
      return rank == b.root() ? std::vector<uint32_t>{0} : std::vector<uint32_t>{};
    case Collective::kScatter:
      return rank == b.root() ? of_others : std::vector<uint32_t>{};
    case Collective::kReduce:
      return rank == b.root() ? std::vector<uint32_t>{} : std::vector<uint32_t>{0};
    case Collective::kGather:
      return rank == b.root() ? std::vector<uint32_t>{} : std::vector<uint32_t>{own};
    case Collective::kScan:
    case Collective::kExscan:
      return rank == b.world() - 1 ? std::vector<uint32_t>{} : std::vector<uint32_t>{0};
    case Collective::kBarrier:
      return {};
  }
  return {};
}

// The contributions of the first ranks to block c, in rank order.
void fold(PlanBuilder& b, uint32_t c, int first, uint16_t flags) {
  std::vector<Ref> contributions;
  for (int r = 0; r < first; ++r) contributions.push_back(r == b.rank() ? b.own(c) : b.posted_input(r, c));
  const Ref output = b.output(c);
  b.step(contributions, {&output, 1}, flags);
}
// All contributions, finished: the result of a reduction.
void fold_all(PlanBuilder& b, uint32_t c) { fold(b, c, b.world(), kFinish); }

constexpr uint32_t kNoBlock = 0xffffffff;

// The block of the input that is a block of this rank's own output, too, as it is; kNoBlock: none.
uint32_t kept_block(const PlanBuilder& b) {
  const bool is_root = b.rank() == b.root();
  switch (b.collective()) {
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return static_cast<uint32_t>(b.rank());
    case Collective::kGather:
    case Collective::kScatter:
      return is_root ? static_cast<uint32_t>(b.rank()) : kNoBlock;
    case Collective::kBroadcast:
      return is_root ? 0 : kNoBlock;
    case Collective::kScan:
      return b.rank() == 0 ? 0 : kNoBlock;
    default:
      return kNoBlock;
  }
}

// The copy into the post and the copy into the own output are one pass over the input where they are of one block.
void post(PlanBuilder& b) {
  uint32_t kept = kept_block(b);
  for (const uint32_t block : posted_blocks(b, b.rank())) {
    if (kept == block) {
      b.step({b.input(block)}, {b.posted(b.rank(), block), b.output(block)});
      kept = kNoBlock;
    } else {
      b.step({b.input(block)}, {b.posted(b.rank(), block)});
    }
  }
  if (kept != kNoBlock) b.copy(kept, kept);
}

// After the signals of all others have come: their posts are complete. No signal follows: a rank's next post says
// that it has read this one's.
void take(PlanBuilder& b) {
  const auto me = static_cast<uint32_t>(b.rank());
  const bool is_root = b.rank() == b.root();
  switch (b.collective()) {
    case Collective::kAllReduce:
      return fold_all(b, 0);
    case Collective::kReduceScatter:
      return fold_all(b, me);
    case Collective::kReduce:
      if (is_root) fold_all(b, 0);
      return;
    case Collective::kScan:
      if (b.rank() > 0) fold(b, 0, b.rank() + 1, 0);
      return;
    case Collective::kExscan:
      if (b.rank() == 1) b.step({b.posted(0, 0)}, {b.output(0)});
      if (b.rank() > 1) fold(b, 0, b.rank(), 0);
      return;
    case Collective::kAllGather:
    case Collective::kGather:
      for (int r = 0; r < b.world() && (is_root || b.collective() == Collective::kAllGather); ++r) {
        const auto c = static_cast<uint32_t>(r);
        if (c != me) b.step({b.posted(r, c)}, {b.output(c)});
      }
      return;
    case Collective::kAllToAll:
      for (int r = 0; r < b.world(); ++r) {
        if (r != b.rank()) b.step({b.posted(r, me)}, {b.output(static_cast<uint32_t>(r))});
      }
      return;
    case Collective::kBroadcast:
      if (!is_root) b.step({b.posted(b.root(), 0)}, {b.output(0)});
      return;
    case Collective::kScatter:
      if (!is_root) b.step({b.posted(b.root(), me)}, {b.output(me)});
      return;
    case Collective::kBarrier:
      return;
  }
}

}  // namespace

// posted_blocks() counted for the rank that posts most, without a plan.
uint64_t most_posted_blocks(Collective collective, int world) {
  return facts_of(collective).input.blocks && world > 2 ? static_cast<uint64_t>(world - 1) : 1;
}

Plan build_one_shot(const PlanRequest& request) {
  const int world = request.topology.world();
  PlanBuilder b(request, direct_blocks(request.collective, world), static_cast<uint32_t>(world - 1));
  for (int rank = 0; rank < b.world(); ++rank) b.set_post(rank, posted_blocks(b, rank));
  post(b);
  b.meet(kEachRound);
  take(b);
  return b.take();
}

}  // namespace rondo
