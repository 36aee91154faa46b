// Floats of 16 and 8 bits with AVX2 and F16C, eight or sixteen at a time.
// Part of element.h. The AVX-512 unit uses these too: only the plain loops change with it.
#pragma once

#include <immintrin.h>

#include "kernels/element.h"

namespace rondo {
namespace {

// Eight floats, and their bits. Floats of 8 bits are Float8E4M3 and Float8E5M2.
typedef float Float8 __attribute__((vector_size(32)));
typedef int32_t Bits8 __attribute__((vector_size(32)));

RONDO_INLINE Bits8 float_bits(Float8 value) { return Bits8(value); }
RONDO_INLINE Float8 float_of(Bits8 bits) { return Float8(bits); }

RONDO_INLINE Float8 quiet_nan(Float8) { return Float8(_mm256_set1_ps(__builtin_nanf(""))); }
RONDO_INLINE Float8 nan_if_unordered(Float8 left, Float8 right, Float8 otherwise) {
  const __m256 unordered = _mm256_cmp_ps(__m256(left), __m256(right), _CMP_UNORD_Q);
  return Float8(_mm256_blendv_ps(__m256(otherwise), __m256(quiet_nan(left)), unordered));
}
RONDO_INLINE Float8 canonical(Float8 value) { return nan_if_unordered(value, value, value); }
RONDO_INLINE Float8 lesser(Float8 left, Float8 right) { return Float8(_mm256_min_ps(__m256(left), __m256(right))); }
RONDO_INLINE Float8 greater(Float8 left, Float8 right) { return Float8(_mm256_max_ps(__m256(left), __m256(right))); }

// The processor converts both ways. NaN becomes canonical first: the conversion would keep its sign and payload.
struct Float16 {
  using Value = float;
  using Accumulator = Float8;
  static constexpr size_t kBytes = 2;
  static constexpr size_t kWidth = 8;
  static RONDO_INLINE Float8 decode(__m128i stored) { return Float8(_mm256_cvtph_ps(stored)); }
  static RONDO_INLINE __m128i encode(Float8 value) {
    return _mm256_cvtps_ph(__m256(value), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static RONDO_INLINE Float8 load(const Byte* from) {
    return decode(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static RONDO_INLINE void store(Byte* to, Float8 value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), encode(canonical(value)));
  }
  static RONDO_INLINE Float8 round(Float8 value) { return decode(encode(value)); }
};

// Sixteen values: the elements of even index and those of odd index, so that bfloat16 needs no shuffle: an odd element
// is the upper half of a 32-bit lane already, an even one is shifted there.
struct FloatPair8 {
  Float8 even;
  Float8 odd;
};
RONDO_INLINE FloatPair8 operator+(FloatPair8 left, FloatPair8 right) {
  return {left.even + right.even, left.odd + right.odd};
}
RONDO_INLINE FloatPair8 operator*(FloatPair8 left, FloatPair8 right) {
  return {left.even * right.even, left.odd * right.odd};
}
RONDO_INLINE FloatPair8 operator*(FloatPair8 left, float right) { return {left.even * right, left.odd * right}; }

struct Bfloat16 {
  using Value = float;
  using Accumulator = FloatPair8;
  static constexpr size_t kBytes = 2;
  static constexpr size_t kWidth = 16;
  static RONDO_INLINE FloatPair8 decode(__m256i stored) {
    return {Float8(_mm256_slli_epi32(stored, 16)), Float8(_mm256_and_si256(stored, _mm256_set1_epi32(-0x10000)))};
  }
  // BfloatCodec's rounding, the result in the upper half of the lanes. The quiet NaN stays itself.
  static RONDO_INLINE __m256i rounded(Float8 value) {
    const __m256i bits = __m256i(canonical(value));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  }
  static RONDO_INLINE __m256i encode(FloatPair8 value) {
    const __m256i even = _mm256_srli_epi32(rounded(value.even), 16);
    return _mm256_blend_epi16(even, rounded(value.odd), 0xaa);
  }
  static RONDO_INLINE FloatPair8 load(const Byte* from) {
    return decode(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static RONDO_INLINE void store(Byte* to, FloatPair8 value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), encode(value));
  }
  static RONDO_INLINE FloatPair8 round(FloatPair8 value) { return decode(encode(value)); }
};

// `value` (positive, or NaN) rounded to kFraction bits after its first one, to nearest, ties to even; below
// 2^kLeastExponent to the units of that power. Adding a power of two whose last place is the unit rounds; taking it
// away again is exact. From 2^100 on the result is NaN or some value of that size.
template <int kFraction, int kLeastExponent>
RONDO_INLINE Float8 round_to(Float8 value) {
  constexpr int kLeast = (127 + kLeastExponent) << 23;
  __m256i exponent = _mm256_and_si256(__m256i(value), _mm256_set1_epi32(0x7f800000));
  exponent = _mm256_max_epi32(exponent, _mm256_set1_epi32(kLeast));
  const Float8 adder = Float8(_mm256_add_epi32(exponent, _mm256_set1_epi32((23 - kFraction) << 23)));
  return (value + adder) - adder;
}
// Sign and magnitude are coded apart, since round_to() takes positive values.
RONDO_INLINE __m256i sign_of(Float8 value) {
  return _mm256_and_si256(__m256i(value), _mm256_set1_epi32(int32_t(0x80000000u)));
}
RONDO_INLINE Float8 magnitude_of(Float8 value) {
  return Float8(_mm256_and_si256(__m256i(value), _mm256_set1_epi32(0x7fffffff)));
}

// Sixteen stored bytes, as bfloat16 takes them apart: the elements of even index, then those of odd index, each byte in
// the upper half of 16 bits, where it is a float16 or nearly one.
template <class Codec>
struct FloatOfBytes {
  using Value = float;
  using Accumulator = FloatPair8;
  static constexpr size_t kBytes = 1;
  static constexpr size_t kWidth = 16;
  static RONDO_INLINE FloatPair8 decode(__m128i stored) {
    return {Codec::decode(_mm_slli_epi16(stored, 8)),
            Codec::decode(_mm_and_si128(stored, _mm_set1_epi16(int16_t(0xff00))))};
  }
  static RONDO_INLINE __m128i encode(FloatPair8 value) {
    return _mm_or_si128(_mm_srli_epi16(Codec::encode(value.even), 8), Codec::encode(value.odd));
  }
  static RONDO_INLINE FloatPair8 load(const Byte* from) {
    return decode(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static RONDO_INLINE void store(Byte* to, FloatPair8 value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), encode(value));
  }
  static RONDO_INLINE FloatPair8 round(FloatPair8 value) { return decode(encode(value)); }
};

// The upper half of a float16.
struct E5m2Codec8 {
  static RONDO_INLINE Float8 decode(__m128i stored) { return Float16::decode(stored); }
  static RONDO_INLINE __m128i encode(Float8 value) {
    const Float8 number = canonical(value);
    // 2^17 is infinite already. NaN, the second operand, stays.
    const __m256 limited = _mm256_min_ps(_mm256_set1_ps(0x1p17f), __m256(magnitude_of(number)));
    const Float8 rounded = round_to<2, -14>(Float8(limited));
    return Float16::encode(Float8(_mm256_or_si256(__m256i(rounded), sign_of(number))));
  }
};

// Moved down by one bit it is the float16 of a value 2^8 times smaller; 0x7f is the NaN, where 480 would be.
struct E4m3Codec8 {
  static constexpr int16_t k480 = 0x3f80;  // 480 / 2^8 as a float16
  static RONDO_INLINE Float8 decode(__m128i stored) {
    const __m128i moved = _mm_and_si128(_mm_srai_epi16(stored, 1), _mm_set1_epi16(int16_t(0xbf80)));
    const __m128i limit = _mm_set1_epi16(k480);
    const __m128i nan = _mm_cmpeq_epi16(_mm_and_si128(moved, limit), limit);
    return Float16::decode(_mm_or_si128(moved, nan)) * 256.0f;
  }
  // Everything above 464, which 448 and 480 are equally near to, and every NaN become 480, and that the positive NaN.
  static RONDO_INLINE __m128i encode(Float8 value) {
    const __m128i limit = _mm_set1_epi16(k480);
    const __m128i half = Float16::encode(round_to<3, -6>(magnitude_of(value)) * 0x1p-8f);
    const __m128i magnitude = _mm_min_epu16(half, limit);
    const __m128i sign =
        _mm_packs_epi32(_mm256_castsi256_si128(sign_of(value)), _mm256_extracti128_si256(sign_of(value), 1));
    const __m128i kept = _mm_andnot_si128(_mm_cmpeq_epi16(magnitude, limit), sign);
    return _mm_or_si128(_mm_add_epi16(magnitude, magnitude), kept);
  }
};

using Float8E4M3 = FloatOfBytes<E4m3Codec8>;
using Float8E5M2 = FloatOfBytes<E5m2Codec8>;

// A fold that is written for one vector.
template <class Operation>
RONDO_INLINE FloatPair8 fold_halves(FloatPair8 left, FloatPair8 right) {
  return {Operation::fold(left.even, right.even), Operation::fold(left.odd, right.odd)};
}

}  // namespace
}  // namespace rondo
