#include "bench/loop/element.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace rondo::bench {
namespace {

uint64_t sign_bit(DType dtype) { return uint64_t{1} << (8 * dtype_bytes(dtype) - 1); }

// All exponent bits and no fraction. Only where the format has an infinity.
uint64_t infinity_bits(const FloatFormat& format) {
  return static_cast<uint64_t>(format.max_exponent - format.min_exponent + 2) << format.fraction_bits;
}

// The bits of the greatest finite value, without the sign.
uint64_t largest_bits(const FloatFormat& format) {
  return (static_cast<uint64_t>(format.max_exponent - format.min_exponent + 1) << format.fraction_bits) |
         static_cast<uint64_t>(format.max_fraction);
}

// A format without infinity has one NaN, behind the greatest value.
uint64_t nan_bits(const FloatFormat& format) {
  if (!format.has_infinity) return largest_bits(format) + 1;
  return infinity_bits(format) | (uint64_t{1} << (format.fraction_bits - 1));
}

}  // namespace

// Fraction bits, least and greatest exponent, fraction of the greatest value, infinity.
FloatFormat float_format(DType dtype) {
  switch (dtype) {
    case DType::kFloat8E4M3:
      return {3, -6, 8, 6, false};
    case DType::kFloat8E5M2:
      return {2, -14, 15, 3, true};
    case DType::kFloat16:
      return {10, -14, 15, 0x3ff, true};
    case DType::kBfloat16:
      return {7, -126, 127, 0x7f, true};
    case DType::kFloat32:
      return {23, -126, 127, 0x7fffff, true};
    default:
      return {52, -1022, 1023, 0xfffffffffffff, true};
  }
}

double largest_value(DType dtype) { return decode_float(dtype, largest_bits(float_format(dtype))); }

int least_exponent(DType dtype) {
  const FloatFormat format = float_format(dtype);
  return format.min_exponent - format.fraction_bits;
}

uint64_t load_element(DType dtype, const void* from) {
  uint64_t bits = 0;
  std::memcpy(&bits, from, dtype_bytes(dtype));  // little-endian, as every machine that the library runs on
  return bits;
}

void store_element(DType dtype, void* to, uint64_t bits) { std::memcpy(to, &bits, dtype_bytes(dtype)); }

double decode_float(DType dtype, uint64_t bits) {
  if (dtype == DType::kFloat64) return std::bit_cast<double>(bits);
  if (dtype == DType::kFloat32) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  const FloatFormat format = float_format(dtype);
  const uint64_t magnitude = bits & (sign_bit(dtype) - 1);
  const double sign = bits & sign_bit(dtype) ? -1 : 1;
  if (magnitude > largest_bits(format))
    return format.has_infinity && magnitude == infinity_bits(format) ? sign * HUGE_VAL : std::nan("");
  const auto exponent = static_cast<int>(magnitude >> format.fraction_bits);
  const uint64_t hidden = uint64_t{1} << format.fraction_bits;
  const uint64_t fraction = magnitude & (hidden - 1);
  if (exponent == 0) return sign * std::ldexp(static_cast<double>(fraction), least_exponent(dtype));
  return sign * std::ldexp(static_cast<double>(fraction + hidden), least_exponent(dtype) + exponent - 1);
}

// By arithmetic, unlike the kernels' work on bits: one mistake cannot be in both.
uint64_t encode_float(DType dtype, double value) {
  const FloatFormat format = float_format(dtype);
  if (std::isnan(value)) return nan_bits(format);
  if (dtype == DType::kFloat64) return std::bit_cast<uint64_t>(value);
  if (dtype == DType::kFloat32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  const uint64_t sign = std::signbit(value) ? sign_bit(dtype) : 0;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  const uint64_t too_large = largest_bits(format) + 1;  // infinity or NaN
  uint64_t stored = too_large;
  if (!std::isinf(magnitude)) {
    const int exponent = std::max(std::ilogb(magnitude), format.min_exponent);
    // Units of the last place, rounded to nearest even by the default mode; one too many carries into the exponent.
    const double units = std::nearbyint(std::ldexp(magnitude, format.fraction_bits - exponent));
    // In double, where no exponent overflows: more than the greatest is infinity or NaN.
    if (exponent <= format.max_exponent)
      stored = (static_cast<uint64_t>(exponent - format.min_exponent) << format.fraction_bits) +
               static_cast<uint64_t>(units);
  }
  if (stored < too_large) return sign | stored;
  return format.has_infinity ? sign | too_large : nan_bits(format);
}

double decode_value(DType dtype, uint64_t bits) {
  if (dtype_is_float(dtype)) return decode_float(dtype, bits);
  return is_signed_integer(dtype) ? static_cast<double>(as_signed(dtype, bits)) : static_cast<double>(bits);
}

uint64_t encode_value(DType dtype, double value) {
  if (dtype_is_float(dtype)) return encode_float(dtype, value);
  if (dtype == DType::kBool) return value != 0;
  return low_bits(dtype, static_cast<uint64_t>(static_cast<int64_t>(value)));
}

uint64_t low_bits(DType dtype, uint64_t bits) {
  const size_t bytes = dtype_bytes(dtype);
  return bytes == 8 ? bits : bits & ((uint64_t{1} << (8 * bytes)) - 1);
}

int64_t as_signed(DType dtype, uint64_t bits) {
  const uint64_t sign = sign_bit(dtype);
  return static_cast<int64_t>((bits ^ sign) - sign);
}

bool is_signed_integer(DType dtype) {
  return dtype == DType::kInt8 || dtype == DType::kInt16 || dtype == DType::kInt32 || dtype == DType::kInt64;
}

}  // namespace rondo::bench
