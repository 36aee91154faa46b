#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ring/engine/device/gate.h"
#include "ring/engine/observe/observer.h"
#include "ring/engine/progress/operation.h"
#include "ring/engine/route/prepared_call.h"
#include "ring/engine/run/run.h"

namespace rondo {

// Tensors that travel as one. They are copied into contiguous memory when their operation begins, and back when
// it has succeeded, by the holder of the lease. Operations of a communicator run one after the other, so all of
// them can use the same memory (TensorLists owns it).
struct Packing {
  struct Piece {
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    size_t bytes = 0;
  };
  std::vector<Piece> pieces;  // one behind the other
  std::byte* memory = nullptr;

  void pack() const {
    std::byte* to = memory;
    for (const Piece& piece : pieces) {
      to = std::copy_n(piece.input, piece.bytes, to);
    }
  }
  void unpack() const {
    const std::byte* from = memory;
    for (const Piece& piece : pieces) {
      std::copy_n(from, piece.bytes, piece.output);
      from += piece.bytes;
    }
  }
};

// One collective call under way. CollectiveCalls makes it; Collectives numbers, queues, moves and ends it.
class CollectiveOperation final : public Operation {
 public:
  CollectiveOperation(std::shared_ptr<PreparedCall> prepared, const CallBuffers& buffers)
      : call(std::move(prepared)), start{buffers} {}

  const std::shared_ptr<PreparedCall> call;  // shared by operations of calls that are alike
  RunStart start;
  std::optional<Packing> packing;  // of an operation of several tensors: the buffers are its memory
  std::shared_ptr<Gate> gate;      // of a call on a stream, which opens it; shared with the stream's
  std::shared_ptr<Run> run;        // of a call that a stream moves: it takes no route, and this sees how far it is
  bool waited_behind = false;      // an earlier operation was under way at its submission: its time says nothing

  // Neighbors in the queue.
  CollectiveOperation* next = nullptr;
  CollectiveOperation* previous = nullptr;

  // Its stream has not reached it yet, so its memory may not be touched.
  bool held_back() const { return gate && !gate->is_open(); }

 private:
  friend class Collectives;
};

// The call as observers record it.
inline Observer::Call observed_call(const CheckedCall& call, int world, Algorithm algorithm) {
  return {call.collective, call.dtype, call.op, algorithm, call.root, call.total_bytes(world)};
}

}  // namespace rondo
