// What is done to elements of a format between load and store. Part of combine_body.h; see element.h on namespaces.
#pragma once

#include "kernels/element.h"
#include "kernels/kernel_table.h"

namespace rondo {
namespace {

// Operations: fold() joins two accumulators, and rounds nothing to the stored type.
struct Add {
  template <class A>
  static RONDO_INLINE A fold(A left, A right) {
    return plus(left, right);
  }
};
struct Multiply {
  template <class A>
  static RONDO_INLINE A fold(A left, A right) {
    return times(left, right);
  }
};
// 1u: two uint16_t would be multiplied as int, whose overflow is undefined.
struct IntegerMultiply {
  template <class A>
  static RONDO_INLINE A fold(A left, A right) {
    return A(1u * left * right);
  }
};

struct BitAnd {
  template <class A>
  static RONDO_INLINE A fold(A left, A right) {
    return A(left & right);
  }
};
struct BitOr {
  template <class A>
  static RONDO_INLINE A fold(A left, A right) {
    return A(left | right);
  }
};
struct BitXor {
  template <class A>
  static RONDO_INLINE A fold(A left, A right) {
    return A(left ^ right);
  }
};

// For Ordered formats, whose accumulators have a sign.
struct IntegerMin {
  template <class A>
  static RONDO_INLINE A fold(A left, A right) {
    return left < right ? left : right;
  }
};
struct IntegerMax {
  template <class A>
  static RONDO_INLINE A fold(A left, A right) {
    return left > right ? left : right;
  }
};

// Both selections agree on ordered, unequal operands. On equal ones (zeros of two signs) and on NaN one gives `left`,
// the other `right`: OR keeps the sign of -0, and keeps a NaN a NaN.
struct FloatMin {
  template <class A>
  static RONDO_INLINE A fold(A left, A right) {
    return float_of(float_bits(lesser(left, right)) | float_bits(lesser(right, left)));
  }
#ifdef __F16C__
  static RONDO_INLINE FloatPair8 fold(FloatPair8 left, FloatPair8 right) { return fold_halves<FloatMin>(left, right); }
#endif
};
// AND drops the sign of -0 unless both have it, but could make a number of a NaN.
struct FloatMax {
  template <class A>
  static RONDO_INLINE A fold(A left, A right) {
    const A number = float_of(float_bits(greater(left, right)) & float_bits(greater(right, left)));
    return nan_if_unordered(left, right, number);
  }
#ifdef __F16C__
  static RONDO_INLINE FloatPair8 fold(FloatPair8 left, FloatPair8 right) { return fold_halves<FloatMax>(left, right); }
#endif
};

// Kernels: enter(value, scale) and leave(value, constant) are what happens between load and fold, and between fold and
// store. Scale is a source's factor, Constant belongs to the whole call. Empty types cost no register in loops that
// scale nothing.
struct None {};

// A fold that changes elements neither before nor after it.
template <class FormatType, class Operation>
struct Plain : Operation {
  using Format = FormatType;
  using Accumulator = typename Format::Accumulator;
  using Scale = None;
  using Constant = None;
  static constexpr bool kTakesOneSource = false;
  static RONDO_INLINE None factor(const FoldArguments&) { return {}; }
  static RONDO_INLINE None constant(const FoldArguments&) { return {}; }
  static RONDO_INLINE None scale(None, bool) { return {}; }
  static RONDO_INLINE Accumulator enter(Accumulator value, None) { return value; }
  static RONDO_INLINE Accumulator leave(Accumulator value, None) { return value; }
};

template <class Format, class Operation>
using Logical = Plain<Truth<Format>, Operation>;

// A source that is not scaled is multiplied by 1, which changes nothing; rounding changes nothing of it either.
template <class FormatType>
struct Scaled : Plain<FormatType, Add> {
  using Scale = typename FormatType::Value;
  static constexpr bool kTakesOneSource = true;
  static RONDO_INLINE Scale scale(Scale factor, bool scaled) { return scaled ? factor : Scale(1); }
};

// kScaledSum
template <class Format>
struct ScaledSum : Scaled<Format> {
  using Scale = typename Format::Value;
  using Accumulator = typename Format::Accumulator;
  static RONDO_INLINE Scale factor(const FoldArguments& arguments) { return Scale(1) / Scale(arguments.world); }
  static RONDO_INLINE Accumulator enter(Accumulator value, Scale scale) { return times(value, scale); }
};

// kScaledRoundedSum
template <class Format>
struct ScaledRoundedSum : Scaled<Format> {
  using Scale = typename Format::Value;
  using Accumulator = typename Format::Accumulator;
  static RONDO_INLINE Scale factor(const FoldArguments& arguments) { return Scale(arguments.scalar); }
  static RONDO_INLINE Accumulator enter(Accumulator value, Scale scale) {
    const Accumulator product = times(value, scale);
    if constexpr (Format::kBytes < sizeof(Scale)) {
      return Format::round(product);
    } else {
      return product;
    }
  }
};

// kDividedSum of floats: one multiplication by 1/world.
template <class Format>
struct FloatAverage : Plain<Format, Add> {
  using Accumulator = typename Format::Accumulator;
  using Constant = typename Format::Value;
  static constexpr bool kTakesOneSource = true;
  static RONDO_INLINE Constant constant(const FoldArguments& arguments) {
    return Constant(1) / Constant(arguments.world);
  }
  static RONDO_INLINE Accumulator leave(Accumulator value, Constant reciprocal) { return times(value, reciprocal); }
};

// The quotient truncated to zero. Divided as floats, which vectorises: the quotient of two integers of up to 16 bits in
// float32, or 32 bits in float64, is never rounded up to the next integer, for 1/world is more than its rounding error.
// world >= 2, so that a quotient of uint32_t fits int32_t.
template <class Value>
struct Division {
  using Divisor = float;
  static RONDO_INLINE Value divide(Value value, Divisor world) { return Value(int32_t(float(value) / world)); }
};
template <>
struct Division<int32_t> {
  using Divisor = double;
  static RONDO_INLINE int32_t divide(int32_t value, Divisor world) { return int32_t(double(value) / world); }
};
template <>
struct Division<uint32_t> {
  using Divisor = double;
  static RONDO_INLINE uint32_t divide(uint32_t value, Divisor world) {
    const double exact = double(int32_t(value ^ 0x80000000u)) + 0x1p31;  // signed conversions are single instructions
    return uint32_t(int32_t(exact / world));
  }
};
template <>
struct Division<int64_t> {
  using Divisor = int64_t;
  static RONDO_INLINE int64_t divide(int64_t value, Divisor world) { return value / world; }
};
template <>
struct Division<uint64_t> {
  using Divisor = uint64_t;
  static RONDO_INLINE uint64_t divide(uint64_t value, Divisor world) { return value / world; }
};

template <class Format>
struct IntegerAverage : Plain<Format, Add> {
  using Accumulator = typename Format::Accumulator;
  using Value = typename Format::Value;
  using Constant = typename Division<Value>::Divisor;
  static constexpr bool kTakesOneSource = true;
  static RONDO_INLINE Constant constant(const FoldArguments& arguments) { return Constant(arguments.world); }
  static RONDO_INLINE Accumulator leave(Accumulator sum, Constant world) {
    return Accumulator(Division<Value>::divide(Value(sum), world));
  }
};

}  // namespace
}  // namespace rondo
