#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/combine.h"
#include "ring/engine/call/call.h"
#include "ring/engine/island/peer_memory.h"
#include "ring/engine/observe/observer.h"
#include "ring/engine/run/run.h"
#include "ring/plan/layout.h"
#include "ring/plan/plan.h"
#include "ring/plan/walk.h"
#include "transport/link.h"

namespace rondo {

// A plan bound to one call. What it points at belongs to the run or to the caller, and must stay until the run is done
// or abandoned.
struct Binding {
  RunStart start;
  // The plan, the blocks and the windows belong to the run, `observed` to the communicator's context.
  const Plan* plan = nullptr;
  const Blocks* blocks = nullptr;
  Slicing slicing;                // in elements
  DType dtype = DType::kFloat32;  // of memory
  CombineSpec combine;            // of float32 where the call has a wire format
  size_t element_bytes = 4;
  // Uneven counts that only the two ranks of a pair know: each step's tag then has its count in the fingerprint.
  bool pairwise = false;
  const WindowBinding* windows = nullptr;  // of plans that have windows
  const Observed* observed = nullptr;      // steps and waits are recorded there
  bool streams = false;                    // what is copied out of windows is more than caches keep: past them

  // The next operation of the same kind.
  void begin(const RunStart& next) {
    start = next;
    combine.user = start.buffers.user.function != nullptr ? &start.buffers.user : nullptr;
  }
};

// The part of a binding that all operations of a prepared call share; the rest comes with RunStart.
Binding binding_of(const CheckedCall& call, const Plan& plan, const Blocks& blocks, const Slicing& slicing);

inline bool is_mailbox(const Ref& ref) { return ref.space == Space::kMailbox; }
// Whether the ref is a post on the board: this rank's, which it writes, or another's, which it reads.
inline bool is_post(const Ref& ref) { return ref.space == Space::kWindow && (ref.flags & kTurns) != 0; }

// One step of a plan, bound.
struct BoundStep : WalkStep {
  // The refs lie in the plan, which must outlive the binding.
  std::span<const Ref> sources, targets;
  uint64_t fingerprint = 0;    // of its slices' tags, if they are counted; else the call's
  uint64_t scaled = 0;         // CombineMove::scaled
  bool peers_buffers = false;  // it touches buffers of others, which their owners may close
  bool copies = false;         // one source that is neither scaled nor finished: bytes move as they are
  bool finish = false;         // CombineMove::finish
  bool passes_on = false;      // it copies what a link has received: coded bytes go on as they came

  // All but the order, which a Walk binds, and `fingerprint`.
  void bind(const Binding& binding, const Step& step);
};

// One slice of a step. It has three lengths: elements, their bytes in memory, and the bytes that travel
// (tag.bytes). The last two are equal, unless the call has a wire format.
struct Slice {
  uint64_t number = 0;  // of the walk
  uint32_t index = 0;   // in its chunk
  Extent elements;      // relative to the step's block
  size_t bytes = 0;
  SliceTag tag;
};

}  // namespace rondo
