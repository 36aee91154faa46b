// Codes of 8 and 4 bits of a wire format's block (wire_codec.h), as plain loops: what wire_avx2.h has as intrinsics.
// Part of rows/wire.cc. See element.h on namespaces.
#pragma once

#include "kernels/wire_block.h"

namespace rondo {
namespace {

constexpr size_t kHalfElements = kElements / 2;

// Elements of a block as integers.
RONDO_INLINE void quantize(const Byte* values, float inverse, int32_t* codes) {
  RONDO_VECTOR_LOOP
  for (size_t i = 0; i < kElements; ++i) codes[i] = nearest(load_unaligned<float>(values + 4 * i) * inverse);
}

// Codes are within -127 and 127, or -7 and 7. int4 stores each plus 8, two elements a byte.
RONDO_INLINE void store_int8(const int32_t* codes, Byte* to) {
  RONDO_VECTOR_LOOP
  for (size_t i = 0; i < kElements; ++i) to[i] = Byte(codes[i]);
}
RONDO_INLINE void store_int4(const int32_t* codes, Byte* to) {
  RONDO_VECTOR_LOOP
  for (size_t i = 0; i < kHalfElements; ++i) to[i] = Byte((codes[i] + 8) | ((codes[kHalfElements + i] + 8) << 4));
}

RONDO_INLINE void encode_int8(const Byte* values, float inverse, Byte* to) {
  int32_t codes[kElements];
  quantize(values, inverse, codes);
  store_int8(codes, to);
}

RONDO_INLINE void encode_int4(const Byte* values, float inverse, Byte* to) {
  int32_t codes[kElements];
  quantize(values, inverse, codes);
  store_int4(codes, to);
}

// The bits of the largest magnitude; from kInfinityBits on, an element is not finite.
RONDO_INLINE uint32_t largest_magnitude(const Byte* values) {
  int32_t largest = 0;
  RONDO_VECTOR_LOOP
  for (size_t i = 0; i < kElements; ++i) {
    const int32_t bits = load_unaligned<int32_t>(values + 4 * i) & 0x7fffffff;
    largest = largest > bits ? largest : bits;
  }
  return uint32_t(largest);
}

template <int32_t kLargest>
RONDO_INLINE void quantize_at_random(const Byte* values, float inverse, uint32_t seed, uint32_t number,
                                     int32_t* codes) {
  const float factor = inverse * float(kChances);
  RONDO_VECTOR_LOOP
  for (size_t i = 0; i < kHalfElements; ++i) {
    const uint32_t word = random_word(seed, number + uint32_t(i));
    const float lower = load_unaligned<float>(values + 4 * i) * factor;
    const float upper = load_unaligned<float>(values + 4 * (kHalfElements + i)) * factor;
    codes[i] = at_random<kLargest>(lower, lower_chance(word));
    codes[kHalfElements + i] = at_random<kLargest>(upper, upper_chance(word));
  }
}

RONDO_INLINE void encode_int8_at_random(const Byte* values, float inverse, uint32_t seed, uint32_t number, Byte* to) {
  int32_t codes[kElements];
  quantize_at_random<127>(values, inverse, seed, number, codes);
  store_int8(codes, to);
}
RONDO_INLINE void decode_int8(const Byte* from, float scale, Byte* values) {
  RONDO_VECTOR_LOOP
  for (size_t i = 0; i < kElements; ++i) {
    store_unaligned<float>(values + 4 * i, float(int32_t(int8_t(from[i]))) * scale);
  }
}

RONDO_INLINE void encode_int4_at_random(const Byte* values, float inverse, uint32_t seed, uint32_t number, Byte* to) {
  int32_t codes[kElements];
  quantize_at_random<7>(values, inverse, seed, number, codes);
  store_int4(codes, to);
}
RONDO_INLINE void decode_int4(const Byte* from, float scale, Byte* values) {
  RONDO_VECTOR_LOOP
  for (size_t i = 0; i < kHalfElements; ++i) {
    store_unaligned<float>(values + 4 * i, float(int32_t(from[i] & 15) - 8) * scale);
  }
  RONDO_VECTOR_LOOP
  for (size_t i = 0; i < kHalfElements; ++i) {
    store_unaligned<float>(values + 4 * (kHalfElements + i), float(int32_t(from[i] >> 4) - 8) * scale);
  }
}

// Plain loops gain nothing from knowing that values are finite and within range.
using ScaledFloat8E4M3 = Float8E4M3;
using ScaledFloat8E5M2 = Float8E5M2;

}  // namespace
}  // namespace rondo
