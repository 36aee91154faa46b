#include "bench/loop/element.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace rondo::bench {
namespace {

uint64_t sign_bit(DType dtype) { return uint64_t{1} << (8 * dtype_bytes(dtype) - 1); }

// Rounded to nearest even by the default mode; one unit too many carries into the exponent.
uint64_t magnitude_bits(const FloatFormat& format, double magnitude) {
  if (magnitude == 0) return 0;
  const int exponent = std::max(std::ilogb(magnitude), format.min_exponent);
  const double units = std::nearbyint(std::ldexp(magnitude, format.fraction_bits - exponent));
  return (static_cast<uint64_t>(exponent - format.min_exponent) << format.fraction_bits) + static_cast<uint64_t>(units);
}

}  // namespace

FloatFormat float_format(DType dtype) {
  switch (dtype) {
    case DType::kFloat8E4M3:
      return {3, -6, 8, 448};
    case DType::kFloat8E5M2:
      return {2, -14, 15, 57344};
    case DType::kFloat16:
      return {10, -14, 15, 65504};
    case DType::kBfloat16:
      return {7, -126, 127, 0x1.fep127};
    case DType::kFloat32:
      return {23, -126, 127, FLT_MAX};
    default:
      return {52, -1022, 1023, DBL_MAX};
  }
}

double load_value(DType dtype, const void* from) {
  uint64_t bits = 0;
  std::memcpy(&bits, from, dtype_bytes(dtype));  // little-endian, as every machine that the library runs on
  if (dtype == DType::kFloat64) return std::bit_cast<double>(bits);
  if (dtype == DType::kFloat32) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  const FloatFormat format = float_format(dtype);
  const uint64_t magnitude = bits & (sign_bit(dtype) - 1), hidden = uint64_t{1} << format.fraction_bits;
  if (magnitude > magnitude_bits(format, format.largest)) return NAN;
  const auto exponent = static_cast<int>(magnitude >> format.fraction_bits);
  const uint64_t units = (magnitude & (hidden - 1)) + (exponent > 0 ? hidden : 0);
  const int unit = format.min_exponent - format.fraction_bits + std::max(exponent - 1, 0);
  const double value = std::ldexp(static_cast<double>(units), unit);
  return bits & sign_bit(dtype) ? -value : value;
}

void store_value(DType dtype, void* to, double value) {
  if (dtype == DType::kFloat64) return static_cast<void>(std::memcpy(to, &value, sizeof value));
  if (dtype == DType::kFloat32) {
    const auto rounded = static_cast<float>(value);
    return static_cast<void>(std::memcpy(to, &rounded, sizeof rounded));
  }
  const FloatFormat format = float_format(dtype);
  const double magnitude = std::fabs(value);
  const uint64_t too_large = magnitude_bits(format, format.largest) + 1;
  uint64_t bits = std::isinf(magnitude) ? too_large : std::min(magnitude_bits(format, magnitude), too_large);
  if (std::signbit(value)) bits |= sign_bit(dtype);
  std::memcpy(to, &bits, dtype_bytes(dtype));
}

}  // namespace rondo::bench
