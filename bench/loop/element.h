#pragma once

#include "rondo/dtype.h"

namespace rondo::bench {

// Float types as docs/numerics.md defines them: plain code, written without a look at kernels/.

// A sign, an exponent, `fraction_bits` behind the point; denormals down to 2^(min_exponent - fraction_bits).
struct FloatFormat {
  int fraction_bits;
  int min_exponent;  // of the least normal value
  int max_exponent;  // of the greatest value
  double largest;
};
FloatFormat float_format(DType dtype);

// The value of a finite element, exactly; else infinity or NaN.
double load_value(DType dtype, const void* from);
// The nearest element, ties to even; what is too large becomes infinity, or NaN in a type without one. No NaN.
void store_value(DType dtype, void* to, double value);

}  // namespace rondo::bench
