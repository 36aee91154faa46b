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

bool is_logical(Op op);
// One fold of two stored integers or bools (of an average: the sum). Of whole numbers in general as DType::kUint64,
// where they do not overflow.
uint64_t fold_integers(DType dtype, Op op, uint64_t left, uint64_t right);
// All of them, which are not negative for an average.
uint64_t fold_integers(DType dtype, Op op, std::span<const uint64_t> values);

}  // namespace rondo::bench
