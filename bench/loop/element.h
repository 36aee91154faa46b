#pragma once

#include <cstdint>

#include "rondo/dtype.h"

// Stored elements and their values, as docs/numerics.md defines them: plain code, written without a look at kernels/,
// which the tests compare with it.
namespace rondo::bench {

// A binary floating-point format: a sign, an exponent, `fraction_bits` behind the point.
struct FloatFormat {
  int fraction_bits;
  int min_exponent;       // of the least normal value
  int max_exponent;       // of the greatest value
  uint64_t max_fraction;  // of the greatest value, in units of its last place
  bool has_infinity;      // otherwise what is too large is NaN
};
FloatFormat float_format(DType dtype);
double largest_value(DType dtype);
// The least positive value, a denormal, is 2^least_exponent.
int least_exponent(DType dtype);

// A stored element in the low bytes of its bits.
uint64_t load_element(DType dtype, const void* from);
void store_element(DType dtype, void* to, uint64_t bits);

// Floats only: the value, exactly; and the nearest stored one, ties to even. Every NaN is encoded as the quiet positive
// one.
double decode_float(DType dtype, uint64_t bits);
uint64_t encode_float(DType dtype, double value);

// Every dtype. Integers: the whole number `value`, which the dtype has; bool: 0 or not.
double decode_value(DType dtype, uint64_t bits);
uint64_t encode_value(DType dtype, double value);
// The same of an element in memory.
inline double load_value(DType dtype, const void* from) { return decode_value(dtype, load_element(dtype, from)); }
inline void store_value(DType dtype, void* to, double value) { store_element(dtype, to, encode_value(dtype, value)); }

bool is_signed_integer(DType dtype);
// Modulo 2^bits; and the number that these bits are in a signed type.
uint64_t low_bits(DType dtype, uint64_t bits);
int64_t as_signed(DType dtype, uint64_t bits);

}  // namespace rondo::bench
