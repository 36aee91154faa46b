#include "tests/kernels/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace rondo {

namespace {

struct Format16 {
  int fraction_bits;
  int min_exponent;  // of normal numbers
  int max_exponent;
};
Format16 format16(DType dtype) { return dtype == DType::kFloat16 ? Format16{10, -14, 15} : Format16{7, -126, 127}; }

bool is_signed(DType dtype) {
  return dtype == DType::kInt8 || dtype == DType::kInt16 || dtype == DType::kInt32 || dtype == DType::kInt64;
}

uint64_t truncate_bits(DType dtype, uint64_t bits) {
  const size_t bytes = dtype_bytes(dtype);
  return bytes == 8 ? bits : bits & ((uint64_t{1} << (8 * bytes)) - 1);
}

int64_t as_signed(DType dtype, uint64_t bits) {
  switch (dtype_bytes(dtype)) {
    case 1:
      return static_cast<int8_t>(bits);
    case 2:
      return static_cast<int16_t>(bits);
    case 4:
      return static_cast<int32_t>(bits);
    default:
      return static_cast<int64_t>(bits);
  }
}

bool integer_less(DType dtype, uint64_t left, uint64_t right) {
  return is_signed(dtype) ? as_signed(dtype, left) < as_signed(dtype, right) : left < right;
}

bool truth(DType dtype, uint64_t bits) {
  if (!dtype_is_float(dtype)) return bits != 0;
  const uint64_t sign = uint64_t{1} << (8 * dtype_bytes(dtype) - 1);
  return (bits & ~sign) != 0;
}

uint64_t one(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 0x3c00;
    case DType::kBfloat16:
      return 0x3f80;
    case DType::kFloat32:
      return 0x3f800000;
    case DType::kFloat64:
      return 0x3ff0000000000000;
    default:
      return 1;
  }
}

uint64_t fold_integer(DType dtype, Op op, uint64_t left, uint64_t right) {
  switch (op) {
    case Op::kProduct:
      return truncate_bits(dtype, left * right);
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
      return truncate_bits(dtype, left + right);
  }
}

uint64_t finish_integer(const CombineSpec& spec, uint64_t sum) {
  if (!is_signed(spec.dtype)) return sum / spec.world;
  return truncate_bits(spec.dtype, static_cast<uint64_t>(as_signed(spec.dtype, sum) / int64_t{spec.world}));
}

template <class Real>
Real fold_float(Op op, Real left, Real right) {
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

// The stored bits as the accumulator type, and back, rounded.
template <class Real>
Real decode(DType dtype, uint64_t bits) {
  if (dtype == DType::kFloat64) return static_cast<Real>(std::bit_cast<double>(bits));
  if (dtype == DType::kFloat32) return static_cast<Real>(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  return static_cast<Real>(reference_decode16(dtype, static_cast<uint16_t>(bits)));
}
uint64_t encode(DType dtype, float value) {
  if (dtype != DType::kFloat32) return reference_encode16(dtype, value);
  return std::isnan(value) ? 0x7fc00000 : std::bit_cast<uint32_t>(value);
}
uint64_t encode(DType, double value) { return std::isnan(value) ? 0x7ff8000000000000 : std::bit_cast<uint64_t>(value); }

template <class Real>
uint64_t combine_floats(const CombineSpec& spec, const std::vector<uint64_t>& sources, uint64_t scaled, bool finish) {
  const Real reciprocal = Real(1) / static_cast<Real>(spec.world);
  Real folded = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    Real value = decode<Real>(spec.dtype, sources[i]);
    if ((scaled >> i) & 1) {
      if (spec.op == Op::kPremulSum)
        value = decode<Real>(spec.dtype, encode(spec.dtype, value * static_cast<Real>(spec.scalar)));
      if (spec.op == Op::kAverage && spec.dtype == DType::kFloat16) value *= reciprocal;
    }
    folded = i == 0 ? value : fold_float(spec.op, folded, value);
  }
  if (finish && spec.op == Op::kAverage && spec.dtype != DType::kFloat16) folded *= reciprocal;
  return encode(spec.dtype, folded);
}

uint64_t combine_truths(const CombineSpec& spec, const std::vector<uint64_t>& sources) {
  bool folded = truth(spec.dtype, sources[0]);
  for (size_t i = 1; i < sources.size(); ++i) {
    const bool next = truth(spec.dtype, sources[i]);
    switch (spec.op) {
      case Op::kProduct:
      case Op::kMin:
      case Op::kBitAnd:
      case Op::kLogicalAnd:
        folded = folded && next;
        break;
      case Op::kBitXor:
      case Op::kLogicalXor:
        folded = folded != next;
        break;
      default:
        folded = folded || next;
    }
  }
  return folded ? one(spec.dtype) : 0;
}

}  // namespace

double reference_decode16(DType dtype, uint16_t stored) {
  const Format16 format = format16(dtype);
  const int fraction = stored & ((1 << format.fraction_bits) - 1);
  const int exponent = (stored & 0x7fff) >> format.fraction_bits;
  const double sign = stored & 0x8000 ? -1 : 1;
  const int quantum = format.min_exponent - format.fraction_bits;
  if (exponent == format.max_exponent - format.min_exponent + 2)
    return fraction != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, quantum);
  return sign * std::ldexp(fraction + (1 << format.fraction_bits), quantum + exponent - 1);
}

uint16_t reference_encode16(DType dtype, float value) {
  const Format16 format = format16(dtype);
  const int infinity = (format.max_exponent - format.min_exponent + 2) << format.fraction_bits;
  if (std::isnan(value)) return static_cast<uint16_t>(infinity | (1 << (format.fraction_bits - 1)));
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude == 0) return static_cast<uint16_t>(sign);
  if (std::isinf(magnitude)) return static_cast<uint16_t>(sign | infinity);
  const int exponent = std::max(std::ilogb(magnitude), format.min_exponent);
  // Units of the last place, rounded to nearest even by the default mode; one too many carries into the exponent.
  const int units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, format.fraction_bits - exponent)));
  const int stored = ((exponent - format.min_exponent) << format.fraction_bits) + units;
  return static_cast<uint16_t>(sign | std::min(stored, infinity));
}

uint64_t reference_combine(const CombineSpec& spec, const std::vector<uint64_t>& sources, uint64_t scaled,
                           bool finish) {
  const bool float_dtype = dtype_is_float(spec.dtype);
  const bool average = spec.op == Op::kAverage && spec.world > 1;
  const bool scales = (spec.op == Op::kPremulSum || (average && spec.dtype == DType::kFloat16)) &&
                      (sources.size() == 64 ? scaled : scaled & ((uint64_t{1} << sources.size()) - 1)) != 0;
  const bool finishes = finish && average && spec.dtype != DType::kFloat16;
  if (sources.size() == 1 && !scales && !finishes) return sources[0];
  const bool logical = spec.op == Op::kLogicalAnd || spec.op == Op::kLogicalOr || spec.op == Op::kLogicalXor;
  if (logical || spec.dtype == DType::kBool) return combine_truths(spec, sources);
  if (spec.dtype == DType::kFloat64) return combine_floats<double>(spec, sources, scaled, finish);
  if (float_dtype) return combine_floats<float>(spec, sources, scaled, finish);
  uint64_t folded = sources[0];
  for (size_t i = 1; i < sources.size(); ++i) folded = fold_integer(spec.dtype, spec.op, folded, sources[i]);
  return finishes ? finish_integer(spec, folded) : folded;
}

std::vector<uint64_t> special_values(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return {0,      0x8000, 0x3c00, 0xbc00, 0x0001, 0x8001, 0x03ff, 0x0400, 0x8400, 0x7bff, 0xfbff,
              0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7c01, 0xfd55, 0x7fff, 0x3555, 0x6400, 0x2e66, 0x1400};
    case DType::kBfloat16:
      return {0,      0x8000, 0x3f80, 0xbf80, 0x0001, 0x8001, 0x007f, 0x0080, 0x8080, 0x7f7f, 0xff7f,
              0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f81, 0xffaa, 0x7fff, 0x3eab, 0x4380, 0x3dcd, 0x3b80};
    case DType::kFloat32:
      return {0,          0x80000000, 0x3f800000, 0xbf800000, 0x00000001, 0x80000001, 0x007fffff,
              0x00800000, 0x80800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000,
              0xffc00000, 0x7f800001, 0xffaaaaaa, 0x7fffffff, 0x3eaaaaab, 0x4b800000, 0x3dcccccd};
    case DType::kFloat64:
      return {0,
              0x8000000000000000,
              0x3ff0000000000000,
              0xbff0000000000000,
              1,
              0x8000000000000001,
              0x000fffffffffffff,
              0x0010000000000000,
              0x7fefffffffffffff,
              0xffefffffffffffff,
              0x7ff0000000000000,
              0xfff0000000000000,
              0x7ff8000000000000,
              0xfff8000000000000,
              0x7ff0000000000001,
              0xfff5555555555555,
              0x7fffffffffffffff,
              0x3fd5555555555555,
              0x4340000000000000,
              0x3fb999999999999a};
    default:
      break;
  }
  std::vector<uint64_t> values;
  const uint64_t half = uint64_t{1} << (8 * dtype_bytes(dtype) - 1);
  for (uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{7}, half - 2, half - 1, half,
                         half + 1, half + half - 3, half + half - 2, half + half - 1, half / 2, half / 3})
    values.push_back(truncate_bits(dtype, value));
  return values;
}

uint64_t load_element(DType dtype, const unsigned char* from) {
  uint64_t bits = 0;
  std::memcpy(&bits, from, dtype_bytes(dtype));
  return bits;
}

void store_element(DType dtype, unsigned char* to, uint64_t bits) { std::memcpy(to, &bits, dtype_bytes(dtype)); }

std::vector<InstructionSet> available_instruction_sets() {
  std::vector<InstructionSet> sets;
  for (InstructionSet set : {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512})
    if (instruction_set_available(set)) sets.push_back(set);
  return sets;
}

std::string describe(InstructionSet set, const CombineSpec& spec) {
  return std::string(instruction_set_name(set)) + " " + dtype_name(spec.dtype) + " " + op_name(spec.op) + " world " +
         std::to_string(spec.world) + " scalar " + std::to_string(spec.scalar);
}

}  // namespace rondo
