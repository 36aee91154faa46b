#include <vector>

#include "ring/plan/builders.h"
#include "ring/plan/plan_builder.h"
#include "ring/plan/shapes.h"

namespace rondo {
namespace {

// The contributions of ranks 0 .. first-1 to block c, in rank order: this rank's own, and the others' as they come.
// The order is the same on every rank, so all fold the same bits.
std::vector<Ref> contributions(const PlanBuilder& b, uint32_t c, int first, const Ref& own) {
  std::vector<Ref> refs;
  for (int r = 0; r < first; ++r) refs.push_back(r == b.rank() ? own : b.from_input(r, c));
  return refs;
}

std::vector<Ref> all_contributions(const PlanBuilder& b, uint32_t c) {
  return contributions(b, c, b.world(), b.own(c));
}

// The rank k places on, or back, round the world.
int after(const PlanBuilder& b, int k) { return (b.rank() + k) % b.world(); }
int before(const PlanBuilder& b, int k) { return (b.rank() + b.world() - k) % b.world(); }

// One message to each other rank, and one fold of all: two steps, the fewest that any algorithm over links has. A rank
// sends N-1 times its data, so it is for short buffers. Coded: the others fold this rank's contribution as decoded, so
// this rank folds the same value, from scratch memory, and not the exact one.
void all_reduce(PlanBuilder& b, bool coded) {
  const Ref input = b.input(0), output = b.output(0), own = coded ? b.scratch_input(0, 0) : b.own(0);
  std::vector<Ref> targets = b.to_others(0);
  if (coded) targets.push_back(b.scratch(0, 0));
  b.step({&input, 1}, targets);
  b.step(contributions(b, 0, b.world(), own), {&output, 1}, kFinish);
}

// Block d goes straight to rank d, which folds its N contributions in one pass.
void reduce_scatter(PlanBuilder& b) {
  const uint32_t mine = static_cast<uint32_t>(b.rank());
  for (int k = 1; k < b.world(); ++k) b.send(static_cast<uint32_t>(after(b, k)), after(b, k));
  const Ref output = b.output(mine);
  b.step(all_contributions(b, mine), {&output, 1}, kFinish);
}

// This rank's block, stored and sent to all others in one step.
void copy_send_all(PlanBuilder& b, uint32_t c) {
  const Ref input = b.input(c);
  std::vector<Ref> targets = b.to_others(c);
  targets.push_back(b.output(c));
  b.step({&input, 1}, targets);
}

// Received blocks come in the order in which the senders' ports are used: the nearest rank before comes first.
void all_gather(PlanBuilder& b) {
  copy_send_all(b, static_cast<uint32_t>(b.rank()));
  for (int k = 1; k < b.world(); ++k) b.recv_copy(static_cast<uint32_t>(before(b, k)), before(b, k));
}

// The root sends world - 1 times the buffer: for short ones.
void broadcast(PlanBuilder& b) {
  if (b.rank() == b.root()) return copy_send_all(b, 0);
  b.recv_copy(0, b.root());
}

// All send to the root, which folds in rank order.
void reduce(PlanBuilder& b) {
  if (b.rank() != b.root()) return b.send(0, b.root());
  const Ref output = b.output(0);
  b.step(all_contributions(b, 0), {&output, 1}, kFinish);
}

// Every rank sends its contribution to those behind it, which fold all before them. `first`: how many are folded
// here; with one there is nothing to fold, and rank 0 of exscan has none at all.
void scan(PlanBuilder& b) {
  const bool with_own = b.collective() == Collective::kScan;
  const int first = with_own ? b.rank() + 1 : b.rank();
  const Ref input = b.input(0), output = b.output(0);
  std::vector<Ref> targets;
  for (int r = b.rank() + 1; r < b.world(); ++r) targets.push_back(b.to(r, 0));
  if (first == 1 && with_own) targets.push_back(output);
  if (!targets.empty()) b.step({&input, 1}, targets);
  if (first == 1 && !with_own) b.recv_copy(0, 0);
  if (first > 1) b.step(contributions(b, 0, first, b.own(0)), {&output, 1});
}

void add_steps(PlanBuilder& b, Collective collective, bool coded) {
  switch (collective) {
    case Collective::kAllReduce:
      return all_reduce(b, coded);
    case Collective::kReduceScatter:
      return reduce_scatter(b);
    case Collective::kAllGather:
      return all_gather(b);
    case Collective::kBroadcast:
      return broadcast(b);
    case Collective::kReduce:
      return reduce(b);
    case Collective::kBarrier:
      return b.meet();
    case Collective::kScan:
    case Collective::kExscan:
      return scan(b);
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll:
      return;  // the ring's are direct already
  }
}

}  // namespace

Plan build_direct(const PlanRequest& request) {
  const Collective c = request.collective;
  if (c == Collective::kGather || c == Collective::kScatter || c == Collective::kAllToAll) return build_ring(request);
  const int world = request.topology.world();
  PlanBuilder b(request, direct_blocks(c, world), static_cast<uint32_t>(world - 1));
  add_steps(b, c, request.coded);
  return b.take();
}

}  // namespace rondo
