#pragma once

#include <memory>
#include <optional>

#include "ring/engine/call/call.h"
#include "ring/engine/call/packing.h"
#include "ring/engine/device/gate.h"
#include "ring/engine/run/run.h"

namespace rondo {

// A call of a batch or list, or one of the operations that they become.
struct BatchPart {
  CheckedCall call;
  bool fusable = true;
  std::optional<Packing> packing = {};
  std::shared_ptr<Gate> gate = nullptr;  // of a call on a stream
  std::shared_ptr<Run> run = nullptr;    // likewise: CollectiveOperation::run
  std::optional<void*> stream = {};      // CallOptions::stream, of what is not yet an operation
};

}  // namespace rondo
