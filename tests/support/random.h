#pragma once

#include <cstdint>

#include "ring/base/hash.h"

namespace rondo::testing {

// A sequence that is the same on every machine for a seed (SplitMix64), which std's distributions are not.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    const uint64_t value = mix64(state_);
    state_ += 0x9e3779b97f4a7c15u;
    return value;
  }
  // 0 .. limit - 1; limit > 0. The bias of the remainder (below 2^-32 for limits below 2^32) does not matter here.
  uint64_t below(uint64_t limit) { return next() % limit; }
  // first .. last, both included.
  uint64_t between(uint64_t first, uint64_t last) { return first + below(last - first + 1); }
  bool chance(uint32_t percent) { return below(100) < percent; }

 private:
  uint64_t state_;
};

}  // namespace rondo::testing
