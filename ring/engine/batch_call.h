#pragma once

#include <optional>

#include "ring/engine/call/call.h"

namespace rondo {

// A call of a batch or list.
struct BatchCall {
  CheckedCall call;
  CallBuffers buffers;
  bool fusable = true;
  std::optional<void*> stream = {};  // CallOptions::stream
};

}  // namespace rondo
