#include <vector>

#include "ring/plan/builders.h"
#include "ring/plan/plan_builder.h"

// Collectives over memory that all ranks reach (Space::kWindow): every rank folds or copies its share straight from the
// others' memory, and signals say when that memory is ready and when it is free again. Before the first step every rank
// has heard from every other that it is in the call (the engine's exchange of places); each rank's last step is after
// the last access of others to its buffers.
//
//   staged       through library memory of each rank: copied in once, folded once, copied out. Works for any buffer.
//   pull         the others' own buffers are read where they lie (the kernel copies, or they are registered).
//   registered   buffers that all ranks may read and write: folds are written to all of them in the same pass.
namespace rondo {
namespace {

// No rank goes on before all have come here.
void barrier(PlanBuilder& b) {
  b.begin_barrier();
  b.meet(kEachRound);
}

// The others go on once the root has come here.
void root_signals(PlanBuilder& b) {
  b.begin_barrier();
  if (b.rank() == b.root()) return b.step({}, b.to_others(0), kEachRound);
  b.step({b.from(b.root(), 0)}, {}, kEachRound);
}

// The root goes on once all have come here.
void root_waits(PlanBuilder& b) {
  b.begin_barrier();
  if (b.rank() == b.root()) return b.step(b.to_others(0), {}, kEachRound);
  b.step({}, {b.to(b.root(), 0)}, kEachRound);
}

uint32_t me(const PlanBuilder& b) { return static_cast<uint32_t>(b.rank()); }

// The others' ranks, from the next one on: not all ranks read the same memory at once.
std::vector<int> others(const PlanBuilder& b) {
  std::vector<int> ranks;
  for (int k = 1; k < b.world(); ++k) ranks.push_back((b.rank() + k) % b.world());
  return ranks;
}

// Which memory of a rank a step reads: (rank, block).
using Window = Ref (PlanBuilder::*)(int, uint32_t) const;

// Every contribution to block c, in rank order.
std::vector<Ref> contributions(const PlanBuilder& b, uint32_t c, Window memory) {
  std::vector<Ref> refs;
  for (int r = 0; r < b.world(); ++r) refs.push_back(r == b.rank() ? b.own(c) : (b.*memory)(r, c));
  return refs;
}

// Every block but the own one: what the others fold or store.
void stage_others(PlanBuilder& b) {
  for (const int r : others(b)) {
    const auto c = static_cast<uint32_t>(r);
    b.step({b.input(c)}, {b.staging(b.rank(), c)});
  }
}

// Block r of each other rank r, from that rank's memory into the output.
void store_others(PlanBuilder& b, Window memory) {
  for (const int r : others(b)) {
    const auto c = static_cast<uint32_t>(r);
    b.step({(b.*memory)(r, c)}, {b.output(c)});
  }
}

// All contributions to this rank's own block, folded into `targets` in one pass.
void fold_into(PlanBuilder& b, Window memory, std::initializer_list<Ref> targets) {
  const std::vector<Ref> sources = contributions(b, me(b), memory);
  b.step(sources, std::span<const Ref>(targets.begin(), targets.size()), kFinish);
}

// --- staged. What a round leaves in the staging memory is read before the reader's next signal, and overwritten after
// its writer has waited for that signal.

void staged_all_reduce(PlanBuilder& b) {
  stage_others(b);
  barrier(b);
  fold_into(b, &PlanBuilder::staged_input, {b.output(me(b)), b.staging(b.rank(), me(b))});
  barrier(b);
  store_others(b, &PlanBuilder::staging);
}

// The second barrier: the staging memory may be written again once all have folded from it.
void staged_reduce_scatter(PlanBuilder& b) {
  stage_others(b);
  barrier(b);
  fold_into(b, &PlanBuilder::staged_input, {b.output(me(b))});
  barrier(b);
}

// The shares are folded by all ranks and collected by the root. The last signal of the root frees the staging memory.
void staged_reduce(PlanBuilder& b) {
  stage_others(b);
  barrier(b);
  const bool root = b.rank() == b.root();
  fold_into(b, &PlanBuilder::staged_input, {root ? b.output(me(b)) : b.staging(b.rank(), me(b))});
  root_waits(b);
  if (root) store_others(b, &PlanBuilder::staging);
  root_signals(b);
}

void staged_all_gather(PlanBuilder& b) {
  b.step({b.input(me(b))}, {b.output(me(b)), b.staging(b.rank(), me(b))});
  barrier(b);
  store_others(b, &PlanBuilder::staging);
  barrier(b);
}

// The root's buffer is read from its staging memory, so the root may change it as soon as the call returns.
void staged_broadcast(PlanBuilder& b) {
  const bool root = b.rank() == b.root();
  if (root) b.step({b.input(0)}, {b.output(0), b.staging(b.rank(), 0)});
  root_signals(b);
  if (!root) b.step({b.staging(b.root(), 0)}, {b.output(0)});
  root_waits(b);
}

// The root's signal says that it has read the others' staging memory.
void staged_gather(PlanBuilder& b) {
  const bool root = b.rank() == b.root();
  if (root) {
    b.copy(me(b), me(b));
  } else {
    b.step({b.input(me(b))}, {b.staging(b.rank(), me(b))});
  }
  root_waits(b);
  if (root) store_others(b, &PlanBuilder::staging);
  root_signals(b);
}

// The root hears from all that have read its staging memory.
void staged_scatter(PlanBuilder& b) {
  const bool root = b.rank() == b.root();
  if (root) {
    stage_others(b);
    b.copy(me(b), me(b));
  }
  root_signals(b);
  if (!root) b.step({b.staging(b.root(), me(b))}, {b.output(me(b))});
  root_waits(b);
}

void staged_all_to_all(PlanBuilder& b) {
  stage_others(b);
  b.copy(me(b), me(b));
  barrier(b);
  for (const int r : others(b)) b.step({b.staging(r, me(b))}, {b.output(static_cast<uint32_t>(r))});
  barrier(b);
}

// --- pull

// Two barriers: outputs are complete before they are read, and read before a call returns.
void pull_all_reduce(PlanBuilder& b) {
  fold_into(b, &PlanBuilder::peer_input, {b.output(me(b))});
  barrier(b);
  store_others(b, &PlanBuilder::peer_output);
  barrier(b);
}

// The barrier at the end: no rank returns to a program that may change its input while another rank still reads it.
void pull_reduce_scatter(PlanBuilder& b) {
  fold_into(b, &PlanBuilder::peer_input, {b.output(me(b))});
  barrier(b);
}

// The root folds alone: a fold elsewhere would need memory that the root can read.
void pull_reduce(PlanBuilder& b) {
  if (b.rank() == b.root()) {
    const std::vector<Ref> sources = contributions(b, 0, &PlanBuilder::peer_input);
    const Ref output = b.output(0);
    b.step(sources, {&output, 1}, kFinish);
  }
  root_signals(b);
}

// Each rank copies all other inputs at once; nothing is written that others read, so one barrier is enough.
void pull_all_gather(PlanBuilder& b) {
  b.copy(me(b), me(b));
  store_others(b, &PlanBuilder::peer_input);
  barrier(b);
}

// The root waits until all have read its buffer.
void pull_broadcast(PlanBuilder& b) {
  if (b.rank() == b.root()) {
    b.copy(0, 0);
  } else {
    b.step({b.peer_input(b.root(), 0)}, {b.output(0)});
  }
  root_waits(b);
}

// The others wait for the root's signal that it has read their inputs.
void pull_gather(PlanBuilder& b) {
  if (b.rank() == b.root()) {
    b.copy(me(b), me(b));
    store_others(b, &PlanBuilder::peer_input);
  }
  root_signals(b);
}

// The root waits for the readers of its buffer, as in pull_broadcast().
void pull_scatter(PlanBuilder& b) {
  if (b.rank() == b.root()) {
    b.copy(me(b), me(b));
  } else {
    b.step({b.peer_input(b.root(), me(b))}, {b.output(me(b))});
  }
  root_waits(b);
}

// The barrier at the end is that of pull_reduce_scatter().
void pull_all_to_all(PlanBuilder& b) {
  b.copy(me(b), me(b));
  for (const int r : others(b)) b.step({b.peer_input(r, me(b))}, {b.output(static_cast<uint32_t>(r))});
  barrier(b);
}

// --- registered

// One pass: this rank's share of all contributions, folded and written to all.
void registered_all_reduce(PlanBuilder& b) {
  const std::vector<Ref> sources = contributions(b, me(b), &PlanBuilder::peer_input);
  std::vector<Ref> targets(1, b.output(me(b)));
  for (const int r : others(b)) targets.push_back(b.peer_output(r, me(b)));
  b.step(sources, targets, kFinish);
  barrier(b);
}

// Each rank folds its share and writes it where it belongs, into the root's output.
void registered_reduce(PlanBuilder& b) {
  const bool root = b.rank() == b.root();
  fold_into(b, &PlanBuilder::peer_input, {root ? b.output(me(b)) : b.peer_output(b.root(), me(b))});
  barrier(b);
}

// One pass: the own block is written to all outputs.
void registered_all_gather(PlanBuilder& b) {
  std::vector<Ref> targets(1, b.output(me(b)));
  for (const int r : others(b)) targets.push_back(b.peer_output(r, me(b)));
  const Ref input = b.input(me(b));
  b.step({&input, 1}, targets);
  barrier(b);
}

using Page = void (*)(PlanBuilder& b);

// What each collective does; where `registered` gains nothing from writing, as pull.
struct Pages {
  Page staged, pull, registered;
};

Pages pages_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return {staged_all_reduce, pull_all_reduce, registered_all_reduce};
    case Collective::kReduceScatter:
      return {staged_reduce_scatter, pull_reduce_scatter, pull_reduce_scatter};
    case Collective::kAllGather:
      return {staged_all_gather, pull_all_gather, registered_all_gather};
    case Collective::kBroadcast:
      return {staged_broadcast, pull_broadcast, pull_broadcast};
    case Collective::kReduce:
      return {staged_reduce, pull_reduce, registered_reduce};
    case Collective::kGather:
      return {staged_gather, pull_gather, pull_gather};
    case Collective::kScatter:
      return {staged_scatter, pull_scatter, pull_scatter};
    case Collective::kAllToAll:
      return {staged_all_to_all, pull_all_to_all, pull_all_to_all};
    case Collective::kBarrier:
    case Collective::kScan:
    case Collective::kExscan:
      break;
  }
  return {};
}

}  // namespace

// One block for a broadcast, and where the root folds alone; otherwise each rank works on a block of its own.
Plan build_window(const PlanRequest& request) {
  const auto world = static_cast<uint32_t>(request.topology.world());
  const Collective c = request.collective;
  const bool alone = request.algorithm == Algorithm::kPull && c == Collective::kReduce;
  const uint32_t blocks = c == Collective::kBroadcast || alone ? 1 : world;
  const Pages pages = pages_of(c);
  const Page page = request.algorithm == Algorithm::kStaged ? pages.staged
                    : request.algorithm == Algorithm::kPull ? pages.pull
                                                            : pages.registered;
  PlanBuilder b(request, blocks, world - 1);
  page(b);
  return b.take();
}

}  // namespace rondo
