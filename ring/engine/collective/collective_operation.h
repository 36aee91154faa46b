#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "ring/engine/call/packing.h"
#include "ring/engine/collective/prepared_call.h"
#include "ring/engine/device/gate.h"
#include "ring/engine/progress/operation.h"
#include "ring/engine/run/run.h"

namespace rondo {

// One collective call under way.
class CollectiveOperation final : public Operation {
 public:
  CollectiveOperation(std::shared_ptr<PreparedCall> prepared, const std::byte* from, std::byte* to,
                      const WireOptions& with = {})
      : call(std::move(prepared)), input(from), output(to), wire(with) {}

  const std::shared_ptr<PreparedCall> call;  // shared by operations of calls that are alike
  const std::byte* const input;
  std::byte* const output;
  const WireOptions wire;          // of a call with a wire format
  uint64_t sequence = 0;           // its number among the communicator's calls
  std::optional<Packing> packing;  // of an operation of several tensors: the buffers are its memory
  std::shared_ptr<Gate> gate;      // of a call on a stream, which opens it; shared with the stream's
  std::shared_ptr<Run> run;        // of a call that a stream moves: it takes no route, and this sees how far it is
  bool queued = false;             // counted by its engine
  bool waited_behind = false;      // it was submitted before the one before it had ended

  // The stream has not come to it yet.
  bool held_back() const { return gate && !gate->is_open(); }

  RunStart start() const { return {input, output, sequence, fingerprint_of(call->kind, sequence), &wire}; }
};

}  // namespace rondo
