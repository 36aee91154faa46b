#include "tests/support/reference.h"

#include <cmath>
#include <limits>

namespace rondo::testing {
namespace {

uint64_t integer_average(const CombineSpec& spec, uint64_t sum) {
  if (!is_signed_integer(spec.dtype)) return sum / spec.world;
  return low_bits(spec.dtype, static_cast<uint64_t>(as_signed(spec.dtype, sum) / int64_t{spec.world}));
}

template <class Real>
Real fold_floats(Op op, Real left, Real right) {
  if (op == Op::kProduct) return left * right;
  if (op != Op::kMin && op != Op::kMax) return left + right;
  if (std::isnan(left) || std::isnan(right)) return std::numeric_limits<Real>::quiet_NaN();
  if (left == 0 && right == 0) {
    const bool negative =
        op == Op::kMin ? std::signbit(left) || std::signbit(right) : std::signbit(left) && std::signbit(right);
    return negative ? Real(-0.0) : Real(0.0);
  }
  return (op == Op::kMin) == (left < right) ? left : right;
}

// Formats in which the sum of contributions could overflow though their average does not.
bool average_scales_first(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2;
}

// Real: the accumulator type. A value of it is exact in double, so that encode_float() rounds once.
template <class Real>
uint64_t combine_floats(const CombineSpec& spec, const std::vector<uint64_t>& sources, uint64_t scaled, bool finish) {
  const DType dtype = spec.dtype;
  const Real reciprocal = Real(1) / static_cast<Real>(spec.world);
  const bool average = spec.op == Op::kAverage, scales_first = average_scales_first(dtype);
  Real folded = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    auto value = static_cast<Real>(decode_float(dtype, sources[i]));
    if ((scaled >> i) & 1) {
      if (spec.op == Op::kPremulSum)
        value = static_cast<Real>(decode_float(dtype, encode_float(dtype, value * static_cast<Real>(spec.scalar))));
      if (average && scales_first) value *= reciprocal;
    }
    folded = i == 0 ? value : fold_floats(spec.op, folded, value);
  }
  if (finish && average && !scales_first) folded *= reciprocal;
  return encode_float(dtype, folded);
}

// Everything but +0 and -0 is true, NaN too.
bool truth(DType dtype, uint64_t bits) { return low_bits(dtype, dtype_is_float(dtype) ? bits << 1 : bits) != 0; }

}  // namespace

uint64_t reference_combine(const CombineSpec& spec, const std::vector<uint64_t>& sources, uint64_t scaled,
                           bool finish) {
  const DType dtype = spec.dtype;
  const bool average = spec.op == Op::kAverage && spec.world > 1;
  const uint64_t listed = ~uint64_t{0} >> (64 - sources.size());
  const bool scales = (scaled & listed) != 0 && (spec.op == Op::kPremulSum || (average && average_scales_first(dtype)));
  const bool finishes = finish && average && !average_scales_first(dtype);
  if (sources.size() == 1 && !scales && !finishes) return sources[0];
  if (dtype_is_float(dtype) && !is_logical(spec.op)) {
    return dtype == DType::kFloat64 ? combine_floats<double>(spec, sources, scaled, finish)
                                    : combine_floats<float>(spec, sources, scaled, finish);
  }
  uint64_t folded = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const uint64_t value = is_logical(spec.op) || dtype == DType::kBool ? truth(dtype, sources[i]) : sources[i];
    folded = i == 0 ? value : fold_integers(dtype, spec.op, folded, value);
  }
  if (dtype_is_float(dtype)) return encode_float(dtype, static_cast<double>(folded));  // 0.0 or 1.0
  return finishes ? integer_average(spec, folded) : folded;
}

}  // namespace rondo::testing
