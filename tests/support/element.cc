#include "tests/support/element.h"

#include <cmath>

namespace rondo::testing {
namespace {

uint64_t sign_bit(DType dtype) { return uint64_t{1} << (8 * dtype_bytes(dtype) - 1); }

std::vector<uint64_t> special_floats(DType dtype) {
  const FloatFormat format = float_format(dtype);
  const uint64_t sign = sign_bit(dtype), least_normal = uint64_t{1} << format.fraction_bits;
  const uint64_t largest = encode_float(dtype, largest_value(dtype)), one = encode_float(dtype, 1);
  std::vector<uint64_t> values = {0,           sign,         one,          one | sign,          1,
                                  1 | sign,    least_normal, largest,      largest | sign,      least_normal - 1,
                                  largest + 1, sign - 1,     2 * sign - 1, least_normal | sign, largest + 1 + sign};
  if (format.has_infinity) {
    const uint64_t nan = encode_float(dtype, NAN), infinity = encode_float(dtype, HUGE_VAL);
    for (uint64_t bits : {nan, nan | sign, infinity + 1, infinity | sign | (nan - infinity + 1)})
      values.push_back(bits);
  }
  for (double value : {1.0 / 3, 0.1, 1.0 / 1024, std::ldexp(1.0, format.fraction_bits), largest_value(dtype) / 2})
    values.push_back(encode_float(dtype, value));
  return values;
}

}  // namespace

std::vector<uint64_t> special_values(DType dtype) {
  if (dtype_is_float(dtype)) return special_floats(dtype);
  std::vector<uint64_t> values;
  const uint64_t half = sign_bit(dtype);
  for (uint64_t value : {uint64_t{0}, uint64_t{3}, uint64_t{1}, uint64_t{2}, uint64_t{7}, half - 2, half - 1, half,
                         half + 1, half + half - 3, half + half - 2, half + half - 1, half / 2, half / 3})
    values.push_back(low_bits(dtype, value));
  return values;
}

}  // namespace rondo::testing
