#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "ring/engine/call/packing.h"
#include "ring/engine/device/gate.h"
#include "ring/engine/observe/observer.h"
#include "ring/engine/progress/operation.h"
#include "ring/engine/route/prepared_call.h"
#include "ring/engine/run/run.h"

namespace rondo {

// One collective call under way.
class CollectiveOperation final : public Operation {
 public:
  CollectiveOperation(std::shared_ptr<PreparedCall> prepared, const CallBuffers& buffers)
      : call(std::move(prepared)), start{buffers} {}

  const std::shared_ptr<PreparedCall> call;  // shared by operations of calls that are alike
  RunStart start;
  std::optional<Packing> packing;  // of an operation of several tensors: the buffers are its memory
  std::shared_ptr<Gate> gate;      // of a call on a stream, which opens it; shared with the stream's
  std::shared_ptr<Run> run;        // of a call that a stream moves: it takes no route, and this sees how far it is
  bool waited_behind = false;      // it was submitted before the one before it had ended

  // Neighbors in the queue.
  CollectiveOperation* next = nullptr;
  CollectiveOperation* previous = nullptr;

  // The stream has not come to it yet.
  bool held_back() const { return gate && !gate->is_open(); }

 private:
  friend class Collectives;
};

// What an observer is told of such a call.
inline Observer::Call observed_call(const CheckedCall& call, int world, Algorithm algorithm) {
  return {call.collective, call.dtype, call.op, algorithm, call.root, call.total_bytes(world)};
}

}  // namespace rondo
