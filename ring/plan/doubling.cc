#include <optional>
#include <vector>

#include "ring/plan/builders.h"
#include "ring/plan/members.h"
#include "ring/plan/plan_builder.h"

namespace rondo {
namespace {

// One member's way through the log2 N exchanges: in exchange k it swaps all that it has folded with the member that
// differs in bit k. What it holds alternates between two scratch slots, so that a slot is written two exchanges after
// it was sent from; the last fold goes to the output. The fold of exchange k and the send of exchange k+1 are one step.
void exchange_all(PlanBuilder& b, const Members& members) {
  const int me = members.member_of(b.rank());
  const int companion = b.rank() + 1;
  const auto partner = [&](int k) { return members.rank_of(me ^ (1 << k)); };
  Ref held = b.own(0);
  if (members.paired(me)) {
    held = b.scratch(1, 0);
    b.step({b.own(0), b.from_input(companion, 0)}, {held, b.to(partner(0), 0)});
  } else {
    b.send(0, partner(0));
  }
  for (int k = 0; k < members.exchanges; ++k) {
    // A partner without a companion sends its contribution as it is in its first exchange; later values are folds.
    const bool raw = k == 0 && !members.paired(me ^ 1);
    const Ref theirs = raw ? b.from_input(partner(k), 0) : b.from(partner(k), 0);
    // Both partners list the lower member's value first: they fold the same expression, so they hold the same bits.
    const bool first = (me & (1 << k)) == 0;
    const Ref sources[2] = {first ? held : theirs, first ? theirs : held};
    if (k + 1 < members.exchanges) {
      held = b.scratch(static_cast<uint32_t>(k % 2), 0);
      const Ref targets[2] = {held, b.to(partner(k + 1), 0)};
      b.step(sources, targets);
    } else {
      std::vector<Ref> targets(1, b.output(0));
      if (members.paired(me)) targets.push_back(b.to(companion, 0));
      b.step(sources, targets, kFinish);
    }
  }
}

}  // namespace

// A companion gives its contribution to the even rank before it, and takes the result from it: two messages.
Plan build_doubling(const PlanRequest& request) {
  const Members members(request.topology.world());
  PlanBuilder b(request, 1, members.max_peers());
  if (members.companion(request.rank)) {
    b.send(0, request.rank - 1);
    b.recv_copy(0, request.rank - 1);
  } else {
    exchange_all(b, members);
  }
  return b.take();
}

}  // namespace rondo
