#pragma once

#include <cstdint>
#include <span>

#include "rondo/dtype.h"
#include "rondo/op.h"

namespace rondo::bench {

// The definition of each operation, on single elements, without any thought of speed.

struct FloatResult {
  double value = 0;
  bool exact = true;  // folding in any order, rounding at each step, gives this very value
};
// premul: the factor of each contribution of Op::kPremulSum.
FloatResult fold_floats(DType dtype, Op op, std::span<const double> values, double premul);

// Modulo 2^bits; of min and max the numbers are not negative. Bool: sum is or, product is and.
uint64_t fold_integers(DType dtype, Op op, std::span<const uint64_t> values);

}  // namespace rondo::bench
