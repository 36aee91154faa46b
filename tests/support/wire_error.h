#pragma once

#include <algorithm>
#include <cmath>

#include "rondo/wire_format.h"

namespace rondo::testing {

inline constexpr WireFormat kCodedFormats[] = {WireFormat::kFloat16,    WireFormat::kBfloat16, WireFormat::kFloat8E4M3,
                                               WireFormat::kFloat8E5M2, WireFormat::kInt8,     WireFormat::kInt4};

// The most by which one encoding of `value` may be off: docs/compression.md, "Wire formats". largest: the magnitude of
// its block's largest element, or more.
inline double wire_error(WireFormat format, double value, double largest, bool stochastic = false) {
  constexpr double kSlack = 1 + 1e-6;  // the scale and its inverse are rounded
  const double magnitude = std::abs(value);
  switch (format) {
    case WireFormat::kFloat16:
      return std::max(std::ldexp(magnitude, -11), std::ldexp(1.0, -25));
    case WireFormat::kBfloat16:
      return std::ldexp(magnitude, -8);
    case WireFormat::kFloat8E4M3:
      return std::max(std::ldexp(magnitude, -4), std::ldexp(largest / 448, -10)) * kSlack;
    case WireFormat::kFloat8E5M2:
      return std::max(std::ldexp(magnitude, -3), std::ldexp(largest / 57'344, -17)) * kSlack;
    case WireFormat::kInt8:
      return largest / 254 * kSlack * (stochastic ? 2 : 1);
    default:
      return largest / 14 * kSlack * (stochastic ? 2 : 1);
  }
}

}  // namespace rondo::testing
