#include "bench/loop/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "bench/loop/element.h"
#include "ring/base/check.h"

namespace rondo::bench {
namespace {

// The largest power of two that divides a normal, non-zero value, as its exponent.
int lowest_bit(double value) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint64_t significand = (bits & ((uint64_t{1} << 52) - 1)) | (uint64_t{1} << 52);
  const int exponent = static_cast<int>((bits >> 52) & 2047) - 1023 - 52;
  return exponent + std::countr_zero(significand);
}

// Whether a value whose lowest bit is 2^unit can be stored: the unit, the range, and the bits between them.
bool representable(DType dtype, double value, int unit) {
  return unit >= least_exponent(dtype) && std::fabs(value) <= largest_value(dtype) &&
         std::fabs(value) <= std::ldexp(1.0, unit + float_format(dtype).fraction_bits + 1);
}

// Positive contributions: every partial sum is a multiple of the smallest unit and at most the total.
FloatResult sum(DType dtype, std::span<const double> values, double scale) {
  FloatResult result;
  int unit = 4096;
  for (double value : values) {
    result.value += value * scale;
    if (value != 0) unit = std::min(unit, lowest_bit(value * scale));
  }
  result.exact = result.value == 0 || representable(dtype, result.value, unit);
  return result;
}

FloatResult average(DType dtype, std::span<const double> values) {
  FloatResult result = sum(dtype, values, 1.0);
  const size_t world = values.size();
  result.value /= static_cast<double>(world);
  // Narrow types divide each contribution first, the others the sum: the same if 1/world is a power of two.
  result.exact = result.exact && (world & (world - 1)) == 0 &&
                 (result.value == 0 || representable(dtype, result.value, lowest_bit(result.value)));
  return result;
}

FloatResult product(DType dtype, std::span<const double> values) {
  FloatResult result{1.0, true};
  for (double value : values) {
    result.value *= value;
    result.exact = result.exact && representable(dtype, result.value, lowest_bit(result.value));
  }
  return result;
}

// Sums and maxima of bools are "or", products and minima "and" (docs/numerics.md).
bool fold_bools(Op op, bool left, bool right) {
  switch (op) {
    case Op::kProduct:
    case Op::kMin:
    case Op::kBitAnd:
    case Op::kLogicalAnd:
      return left && right;
    case Op::kBitXor:
    case Op::kLogicalXor:
      return left != right;
    default:
      return left || right;
  }
}

bool integer_less(DType dtype, uint64_t left, uint64_t right) {
  return is_signed_integer(dtype) ? as_signed(dtype, left) < as_signed(dtype, right) : left < right;
}

}  // namespace

bool is_logical(Op op) { return op == Op::kLogicalAnd || op == Op::kLogicalOr || op == Op::kLogicalXor; }

// kAverage adds here; the list's fold divides.
uint64_t fold_integers(DType dtype, Op op, uint64_t left, uint64_t right) {
  if (dtype == DType::kBool || is_logical(op)) return fold_bools(op, left != 0, right != 0);
  switch (op) {
    case Op::kProduct:
      return low_bits(dtype, left * right);
    case Op::kMin:
      return integer_less(dtype, left, right) ? left : right;
    case Op::kMax:
      return integer_less(dtype, left, right) ? right : left;
    case Op::kBitAnd:
      return left & right;
    case Op::kBitOr:
      return left | right;
    case Op::kBitXor:
      return left ^ right;
    default:
      return low_bits(dtype, left + right);
  }
}

FloatResult fold_floats(DType dtype, Op op, std::span<const double> values, double premul) {
  if (is_logical(op)) {
    std::vector<uint64_t> truths;
    for (double value : values) truths.push_back(value != 0);
    return {static_cast<double>(fold_integers(DType::kBool, op, truths)), true};
  }
  switch (op) {
    case Op::kMin:
      return {*std::min_element(values.begin(), values.end()), true};
    case Op::kMax:
      return {*std::max_element(values.begin(), values.end()), true};
    case Op::kProduct:
      return product(dtype, values);
    case Op::kAverage:
      return average(dtype, values);
    case Op::kPremulSum:
      return sum(dtype, values, premul);
    default:
      RONDO_CHECK(op == Op::kSum, "an operation on floats");
      return sum(dtype, values, 1.0);
  }
}

uint64_t fold_integers(DType dtype, Op op, std::span<const uint64_t> values) {
  uint64_t result = values[0];
  for (const uint64_t value : values.subspan(1)) result = fold_integers(dtype, op, result, value);
  return op == Op::kAverage ? result / values.size() : result;
}

}  // namespace rondo::bench
