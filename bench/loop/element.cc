#include "bench/loop/element.h"

#include <cfloat>
#include <cmath>
#include <cstring>

#include "ring/base/check.h"

namespace rondo::bench {
namespace {

// Nearest multiple of the format's spacing at this magnitude.
double round_to(const FloatFormat& format, double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  const int spacing = std::max(exponent - format.digits, format.lowest);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -spacing)), spacing);
  return std::fabs(rounded) > format.largest ? std::copysign(INFINITY, value) : rounded;
}

// A value of binary16, already rounded, as its bits.
uint16_t half_bits(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00);
  if (std::isinf(value)) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 0x1p-14) return static_cast<uint16_t>(sign | static_cast<uint16_t>(magnitude * 0x1p24));
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);  // 0.5 .. 1
  const auto mantissa = static_cast<uint16_t>((fraction * 2 - 1) * 1024);
  return static_cast<uint16_t>(sign | ((exponent + 14) << 10) | mantissa);
}

double half_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  double magnitude = std::ldexp(mantissa, -24);
  if (exponent == 31) magnitude = mantissa != 0 ? NAN : INFINITY;
  if (exponent > 0 && exponent < 31) magnitude = std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <typename Value>
void store(Value value, std::byte* out) {
  std::memcpy(out, &value, sizeof(value));
}
template <typename Value>
Value load(const std::byte* in) {
  Value value;
  std::memcpy(&value, in, sizeof(value));
  return value;
}

}  // namespace

FloatFormat float_format(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return {11, -24, 65504};
    case DType::kBfloat16:
      return {8, -133, 0x1.fep127};
    case DType::kFloat32:
      return {24, -149, FLT_MAX};
    default:
      RONDO_CHECK(dtype == DType::kFloat64, "a float type");
      return {53, -1074, DBL_MAX};
  }
}

void encode_float(DType dtype, double value, std::byte* out) {
  const double rounded = round_to(float_format(dtype), value);
  switch (dtype) {
    case DType::kFloat16:
      return store(half_bits(rounded), out);
    case DType::kBfloat16: {
      uint32_t bits = 0;
      store(static_cast<float>(rounded), reinterpret_cast<std::byte*>(&bits));
      return store(static_cast<uint16_t>(bits >> 16), out);
    }
    case DType::kFloat32:
      return store(static_cast<float>(rounded), out);
    default:
      return store(rounded, out);
  }
}

double decode_float(DType dtype, const std::byte* in) {
  switch (dtype) {
    case DType::kFloat16:
      return half_value(load<uint16_t>(in));
    case DType::kBfloat16: {
      const uint32_t bits = static_cast<uint32_t>(load<uint16_t>(in)) << 16;
      return static_cast<double>(load<float>(reinterpret_cast<const std::byte*>(&bits)));
    }
    case DType::kFloat32:
      return static_cast<double>(load<float>(in));
    default:
      return load<double>(in);
  }
}

// The low bytes come first: little-endian, as every machine that Rondo runs on.
void encode_integer(DType dtype, uint64_t value, std::byte* out) { std::memcpy(out, &value, dtype_bytes(dtype)); }

uint64_t decode_integer(DType dtype, const std::byte* in) {
  uint64_t value = 0;
  std::memcpy(&value, in, dtype_bytes(dtype));
  return value;
}

}  // namespace rondo::bench
