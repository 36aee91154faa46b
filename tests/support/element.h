#pragma once

#include <cstdint>
#include <vector>

#include "bench/loop/element.h"

namespace rondo::testing {

using bench::as_signed;
using bench::decode_float;
using bench::decode_value;
using bench::encode_float;
using bench::encode_value;
using bench::float_format;
using bench::FloatFormat;
using bench::is_signed_integer;
using bench::largest_value;
using bench::least_exponent;
using bench::load_element;
using bench::load_value;
using bench::low_bits;
using bench::store_element;
using bench::store_value;

// Stored elements on which implementations differ: limits, signs, zeros, denormals, infinities, NaN of several
// payloads. The third one is 1.
std::vector<uint64_t> special_values(DType dtype);

}  // namespace rondo::testing
