#pragma once

#include <cstddef>
#include <cstdint>

#include "rondo/dtype.h"

namespace rondo::bench {

// Values as the reference computes them: floats in double, integers and bool in uint64 modulo 2^bits.

// The nearest value of the dtype (ties to even; too large becomes infinity). dtype_is_float only.
void encode_float(DType dtype, double value, std::byte* out);
double decode_float(DType dtype, const std::byte* in);

// The low bytes of `value`. Integers and bool only.
void encode_integer(DType dtype, uint64_t value, std::byte* out);
// Zero-extended.
uint64_t decode_integer(DType dtype, const std::byte* in);

// What a float type can hold exactly: integers of `digits` bits times 2^e, from 2^lowest up to `largest`.
struct FloatFormat {
  int digits;  // of the significand, the hidden one included
  int lowest;  // exponent of the smallest positive value, denormals included
  double largest;
};
FloatFormat float_format(DType dtype);

}  // namespace rondo::bench
