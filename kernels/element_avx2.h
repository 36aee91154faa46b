// 16-bit floats eight at a time with AVX2 and F16C.
// Part of element.h. The AVX-512 unit uses these too: only the plain loops change with it.
#pragma once

#include <immintrin.h>

#include "kernels/element.h"

namespace rondo {
namespace {

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

// Codec::encode makes NaN the quiet NaN; encode_number may make anything of a NaN but a number.
template <class Codec>
struct Small8 {
  using Value = float;
  using Accumulator = Float8;
  static constexpr size_t kBytes = 2;
  static constexpr size_t kWidth = 8;
  static RONDO_INLINE Float8 load(const Byte* from) {
    return Codec::decode(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static RONDO_INLINE void store(Byte* to, Float8 value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), Codec::encode(canonical(value)));
  }
  static RONDO_INLINE Float8 round(Float8 value) { return Codec::decode(Codec::encode(Codec::safe(value))); }
};

struct HalfCodec8 {
  static RONDO_INLINE Float8 decode(__m128i stored) { return Float8(_mm256_cvtph_ps(stored)); }
  static RONDO_INLINE __m128i encode(Float8 value) {
    return _mm256_cvtps_ph(__m256(value), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // What encode() makes no number of, though it is NaN: the processor keeps every NaN a NaN.
  static RONDO_INLINE Float8 safe(Float8 value) { return value; }
};

struct BfloatCodec8 {
  static RONDO_INLINE Float8 decode(__m128i stored) {
    return Float8(_mm256_slli_epi32(_mm256_cvtepu16_epi32(stored), 16));
  }
  // As BfloatCodec; of NaN only the quiet one stays NaN.
  static RONDO_INLINE __m128i encode(Float8 value) {
    const __m256i bits = __m256i(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i rounded = _mm256_srli_epi32(sum, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
  }
  static RONDO_INLINE Float8 safe(Float8 value) { return canonical(value); }
};

using Float16 = Small8<HalfCodec8>;
using Bfloat16 = Small8<BfloatCodec8>;

}  // namespace
}  // namespace rondo
