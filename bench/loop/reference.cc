#include "bench/loop/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>

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

bool representable(const FloatFormat& format, double value, int unit) {
  return unit >= format.lowest && std::fabs(value) <= format.largest &&
         std::fabs(value) <= std::ldexp(1.0, unit + format.digits);
}

// Positive contributions: every partial sum is a multiple of the smallest unit and at most the total.
FloatResult sum(const FloatFormat& format, std::span<const double> values, double scale) {
  FloatResult result;
  int unit = 4096;
  for (double value : values) {
    result.value += value * scale;
    if (value != 0) unit = std::min(unit, lowest_bit(value * scale));
  }
  result.exact = result.value == 0 || representable(format, result.value, unit);
  return result;
}

FloatResult average(const FloatFormat& format, std::span<const double> values) {
  FloatResult result = sum(format, values, 1.0);
  const size_t world = values.size();
  result.value /= static_cast<double>(world);
  // float16 divides each contribution first, the others the sum: the same if 1/world is a power of two.
  result.exact = result.exact && (world & (world - 1)) == 0 &&
                 (result.value == 0 || representable(format, result.value, lowest_bit(result.value)));
  return result;
}

FloatResult product(const FloatFormat& format, std::span<const double> values) {
  FloatResult result{1.0, true};
  for (double value : values) {
    result.value *= value;
    result.exact = result.exact && representable(format, result.value, lowest_bit(result.value));
  }
  return result;
}

uint64_t logical(Op op, size_t set, size_t all) {
  switch (op) {
    case Op::kLogicalAnd:
      return set == all ? 1 : 0;
    case Op::kLogicalOr:
      return set > 0 ? 1 : 0;
    default:
      return set % 2;
  }
}

// On 0 and 1 each operation is one of the logical ones.
Op logical_of_bool(Op op) {
  switch (op) {
    case Op::kProduct:
    case Op::kMin:
    case Op::kBitAnd:
    case Op::kLogicalAnd:
      return Op::kLogicalAnd;
    case Op::kBitXor:
    case Op::kLogicalXor:
      return Op::kLogicalXor;
    default:
      return Op::kLogicalOr;
  }
}

bool is_logical(Op op) { return op == Op::kLogicalAnd || op == Op::kLogicalOr || op == Op::kLogicalXor; }

template <typename Value>
uint64_t logical_fold(Op op, std::span<const Value> values) {
  const auto set = std::count_if(values.begin(), values.end(), [](Value value) { return value != 0; });
  return logical(op, static_cast<size_t>(set), values.size());
}

uint64_t combine_two(Op op, uint64_t a, uint64_t b) {
  switch (op) {
    case Op::kProduct:
      return a * b;
    case Op::kMin:
      return std::min(a, b);
    case Op::kMax:
      return std::max(a, b);
    case Op::kBitAnd:
      return a & b;
    case Op::kBitOr:
      return a | b;
    case Op::kBitXor:
      return a ^ b;
    default:
      return a + b;
  }
}

}  // namespace

FloatResult fold_floats(DType dtype, Op op, std::span<const double> values, double premul) {
  const FloatFormat format = float_format(dtype);
  if (is_logical(op)) return {static_cast<double>(logical_fold(op, values)), true};
  switch (op) {
    case Op::kMin:
      return {*std::min_element(values.begin(), values.end()), true};
    case Op::kMax:
      return {*std::max_element(values.begin(), values.end()), true};
    case Op::kProduct:
      return product(format, values);
    case Op::kAverage:
      return average(format, values);
    case Op::kPremulSum:
      return sum(format, values, premul);
    default:
      RONDO_CHECK(op == Op::kSum, "an operation on floats");
      return sum(format, values, 1.0);
  }
}

uint64_t fold_integers(DType dtype, Op op, std::span<const uint64_t> values) {
  if (dtype == DType::kBool) return logical_fold(logical_of_bool(op), values);
  if (is_logical(op)) return logical_fold(op, values);
  uint64_t result = values[0];
  for (size_t i = 1; i < values.size(); ++i) result = combine_two(op, result, values[i]);
  if (op == Op::kAverage) result /= values.size();
  const size_t bits = dtype_bytes(dtype) * 8;
  return bits == 64 ? result : result & ((uint64_t{1} << bits) - 1);
}

}  // namespace rondo::bench
