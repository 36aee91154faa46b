#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ring/base/types.h"

namespace rondo {

// A collective as data: what one rank does, in order. Built by a pure function (build.h), proved by verify.h, costed by
// simulate.h, run by ring/engine/run/plan_run.h. Steps name blocks, never bytes or pointers, so a plan serves every
// count and dtype and is cached.

// Where a step reads or writes.
//   kInput, kOutput  the caller's buffers. Blocks are those of the whole collective, numbered alike on every rank:
//                    all_reduce, broadcast, reduce: block c of `blocks` of the buffer (input and output alike);
//                    reduce_scatter: input blocks 0..world-1, output block = own rank; all_gather: the reverse;
//                    gather: input block = own rank, output blocks 0..world-1 on the root; scatter: the reverse;
//                    all_to_all: input block d goes to rank d, output block s came from rank s.
//                    In place, input block c and output block c are the same memory.
//   kScratch         library memory of this rank; block = slot * plan.blocks + c, with room for a piece of
//                    block c.
//   kMailbox         as a source: the next slices from `peer`; as a target: sent to `peer`. Its block is the step's.
//   kWindow          memory of `peer` that this step loads from or stores to: its input, or by flag its output or
//                    its staging memory (a block of the collective, with room for a piece of it; also the own
//                    rank's). Only signals order what several ranks do to it.
enum class Space : uint8_t { kInput = 0, kOutput = 1, kScratch = 2, kMailbox = 3, kWindow = 4 };

enum RefFlags : uint8_t {
  kScale = 1,       // a source: this is a raw contribution, loaded into a fold for the first time (CombineMove::scaled)
  kPeerOutput = 2,  // kWindow: the peer's output
  kStaging = 4,     // kWindow: the peer's staging memory
  kTurns = 8,       // with kStaging: one of some places, which rounds and calls use in turn; two are enough
};

struct Ref {
  Space space = Space::kInput;
  uint8_t flags = 0;
  uint16_t peer = 0;  // kMailbox, kWindow: a rank of the group
  uint32_t block = 0;
  bool operator==(const Ref&) const = default;
};

// Memory of another rank, or on its way from or to one. All else is this rank's input, output or scratch.
constexpr bool is_remote(const Ref& ref) { return ref.space == Space::kMailbox || ref.space == Space::kWindow; }

enum StepFlags : uint16_t {
  kFinish = 1,     // the fold is complete: what is written is the result (CombineMove::finish)
  kEachRound = 2,  // a signal or a wait: once every round, not in the first only
};

inline constexpr uint32_t kNoStep = 0xffffffffu;
inline constexpr uint32_t kMaxStepSources = 64;  // what one combine takes (kernels/combine.h)
inline constexpr uint32_t kMaxStepTargets = 64;

// value = sources folded in the listed order, rounded once; written to every target. All refs have the same element
// count. No source and mailbox targets: a signal (one empty slice). Mailbox sources and no target: a wait.
// A step that moves data names at least one block of this rank's input, output or scratch, which says how long it is.
struct Step {
  uint32_t first = 0;  // index in Plan::refs of its sources, then its targets
  // Before a slice of this step is written to memory, the same slice of step `after` must be combined and sent, and all
  // before it: the last earlier step whose slices a link may still read from that memory, or, if this step is received
  // into memory as it is (one source, a mailbox) and may therefore land early, the last that uses it at all. An index
  // in Plan::steps, or kNoStep. Input and output count as one memory, as in place.
  uint32_t after = kNoStep;
  uint8_t sources = 0;
  uint8_t targets = 0;
  uint16_t flags = 0;
  // A signal or a wait between steps on windows: the number of the barrier that it is part of, from 1 on in each
  // round; the same barriers on all ranks, so that a number in shared memory can say how far a rank is. 0: none.
  uint16_t barrier = 0;
  bool operator==(const Step&) const = default;
};

struct Plan {
  Collective collective = Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;
  int rank = 0;
  int world = 1;
  int root = -1;                  // -1 where the collective has none
  uint32_t blocks = 1;            // of the collective
  uint32_t scratch_slots = 0;     // scratch blocks are numbered below scratch_slots * blocks
  uint32_t chunks_in_flight = 1;  // chunks that a link may have to hold at once (equal on all ranks): the cut leaves a
                                  // chunk that many times fewer slices than the depth of links allows
  std::vector<std::vector<uint32_t>> posts;  // of each rank, the blocks that its post holds one behind the other (equal
                                             // on all ranks); empty: a collective without posts
  uint32_t max_peers = 0;  // the most peers that any rank of this collective has (equal on all ranks; sizes mailboxes)
  std::vector<int> peers;  // ranks that this plan has links to, ascending, no duplicates
  std::vector<Step> steps;
  std::vector<Ref> refs;

  bool operator==(const Plan&) const = default;
};

inline std::span<const Ref> sources_of(const Plan& plan, const Step& step) {
  return std::span<const Ref>(plan.refs).subspan(step.first, step.sources);
}
inline std::span<const Ref> targets_of(const Plan& plan, const Step& step) {
  return std::span<const Ref>(plan.refs).subspan(step.first + step.sources, step.targets);
}
// Sources, then targets.
inline std::span<const Ref> refs_of(const Plan& plan, const Step& step) {
  return std::span<const Ref>(plan.refs).subspan(step.first, size_t{step.sources} + step.targets);
}

// Where in the post of ref.peer the block of `ref` is, counted in blocks; the number of blocks of that post: not there.
inline uint32_t place_in_post(const Plan& plan, const Ref& ref) {
  const std::vector<uint32_t>& blocks = plan.posts[ref.peer];
  return static_cast<uint32_t>(std::find(blocks.begin(), blocks.end(), ref.block) - blocks.begin());
}

}  // namespace rondo
