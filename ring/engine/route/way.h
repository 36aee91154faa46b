#pragma once

#include <compare>

#include "ring/base/types.h"

namespace rondo {

// One way to run a call.
struct Way {
  Algorithm algorithm = Algorithm::kAuto;
  bool streamed = false;  // what other ranks read next is written past the caches (kernels/cross_copy.h)
  bool operator==(const Way&) const = default;
};

}  // namespace rondo
