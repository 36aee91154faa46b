// Codes of 8 and 4 bits of a wire format's block (wire_codec.h), with AVX2 and F16C: the bits of wire_block.h's plain
// arithmetic. Part of rows/wire.cc; the AVX-512 unit uses the same. See element.h on namespaces.
// Elements to encode are finite; scaled, none is larger than the largest code, but for a rounding.
#pragma once

#include "kernels/wire_block.h"

namespace rondo {
namespace {

constexpr size_t kVectors = kElements / 8;  // of a block
// Vectors of a half of the block: int4 and random words join an element of each half.
constexpr size_t kHalf = kVectors / 2;

RONDO_INLINE __m256 vector_of(const Byte* values, size_t vector) {
  return __m256(load_unaligned<Float8>(values + vector * sizeof(Float8)));
}
RONDO_INLINE void store_bytes(Byte* to, __m256i bytes) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes); }

// Values in two stores: memory of malloc begins 16 bytes behind that of a cache line, where every second store of 32
// bytes would cross lines.
RONDO_INLINE void store_vector(Byte* values, __m256 from) {
  _mm_storeu_ps(reinterpret_cast<float*>(values), _mm256_castps256_ps128(from));
  _mm_storeu_ps(reinterpret_cast<float*>(values + 16), _mm256_extractf128_ps(from, 1));
}

// The bits of the largest magnitude; from kInfinityBits on, an element is not finite.
RONDO_INLINE uint32_t largest_magnitude(const Byte* values) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  __m256i first = _mm256_setzero_si256(), second = first;
  for (size_t v = 0; v < kVectors; v += 2) {
    first = _mm256_max_epi32(first, _mm256_and_si256(__m256i(vector_of(values, v)), mask));
    second = _mm256_max_epi32(second, _mm256_and_si256(__m256i(vector_of(values, v + 1)), mask));
  }
  first = _mm256_max_epi32(first, second);
  __m128i largest = _mm_max_epi32(_mm256_castsi256_si128(first), _mm256_extracti128_si256(first, 1));
  largest = _mm_max_epi32(largest, _mm_shuffle_epi32(largest, 0x4e));
  largest = _mm_max_epi32(largest, _mm_shuffle_epi32(largest, 0xb1));
  return uint32_t(_mm_cvtsi128_si32(largest));
}

// nearest(): within +-2^31 the conversion rounds as the addition does.
RONDO_INLINE __m256i nearest8(__m256 values, __m256 factor) {
  return _mm256_cvtps_epi32(_mm256_mul_ps(values, factor));
}

// The bytes of two vectors of 16, each packed from two of 8 by _mm256_packs_epi32, in the order of elements.
RONDO_INLINE __m256i bytes_of(__m256i first, __m256i second) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(first, second), order);
}

// --- Rounding at random: of 8 words, the chances of a vector in the first half of the block and of one in the second.
struct RandomVectors {
  __m256i counter;
  RONDO_INLINE RandomVectors(uint32_t seed, uint32_t number) {
    const __m256i numbers =
        _mm256_add_epi32(_mm256_set1_epi32(int32_t(number)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    counter = _mm256_add_epi32(_mm256_mullo_epi32(numbers, _mm256_set1_epi32(int32_t(kWeyl))),
                               _mm256_set1_epi32(int32_t(seed)));
  }
  // random_word() of the next eight numbers.
  RONDO_INLINE __m256i next() {
    __m256i h = counter;
    counter = _mm256_add_epi32(counter, _mm256_set1_epi32(int32_t(8 * kWeyl)));
    h = _mm256_mullo_epi32(_mm256_xor_si256(h, _mm256_srli_epi32(h, 16)), _mm256_set1_epi32(int32_t(kMixFirst)));
    h = _mm256_mullo_epi32(_mm256_xor_si256(h, _mm256_srli_epi32(h, 13)), _mm256_set1_epi32(int32_t(kMixSecond)));
    return _mm256_xor_si256(h, _mm256_srli_epi32(h, 16));
  }
};

// at_random() but for its limits, of the vectors v and v + 1 of each half as 16 bits: factor is kChances / scale.
struct CodePair {
  __m256i lower, upper;
};
RONDO_INLINE CodePair random_codes(const Byte* values, size_t v, __m256 factor, RandomVectors& random) {
  __m256i lower[2], upper[2];
  for (size_t i = 0; i < 2; ++i) {
    const __m256i word = random.next();
    const __m256i low = _mm256_and_si256(word, _mm256_set1_epi32(kChances - 1));
    const __m256i high = _mm256_srli_epi32(word, 32 - kChanceBits);
    lower[i] = _mm256_add_epi32(nearest8(vector_of(values, v + i), factor), low);
    upper[i] = _mm256_add_epi32(nearest8(vector_of(values, kHalf + v + i), factor), high);
    lower[i] = _mm256_srai_epi32(lower[i], kChanceBits);
    upper[i] = _mm256_srai_epi32(upper[i], kChanceBits);
  }
  return {_mm256_packs_epi32(lower[0], lower[1]), _mm256_packs_epi32(upper[0], upper[1])};
}

// --- int8

RONDO_INLINE void encode_int8_at_random(const Byte* values, float inverse, uint32_t seed, uint32_t number, Byte* to) {
  const __m256 factor = _mm256_set1_ps(inverse * float(kChances));
  const __m256i least = _mm256_set1_epi8(-127);  // the largest, 127, is that of a byte
  RandomVectors random(seed, number);
  for (size_t v = 0; v < kHalf; v += 4) {
    const CodePair first = random_codes(values, v, factor, random);
    const CodePair second = random_codes(values, v + 2, factor, random);
    store_bytes(to + 8 * v, _mm256_max_epi8(bytes_of(first.lower, second.lower), least));
    store_bytes(to + 8 * (kHalf + v), _mm256_max_epi8(bytes_of(first.upper, second.upper), least));
  }
}

RONDO_INLINE void decode_int8(const Byte* from, float scale, Byte* values) {
  const __m256 factor = _mm256_set1_ps(scale);
  for (size_t v = 0; v < kVectors; ++v) {
    const __m256i codes = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 8 * v)));
    store_vector(values + 32 * v, _mm256_mul_ps(_mm256_cvtepi32_ps(codes), factor));
  }
}

// --- int4: the code of the second half in the upper four bits, each plus 8.

// The sum is within -119 and 119, a byte. A negative lower code borrows from the upper one; the 8 that store_nibbles()
// adds to each sets that right.
RONDO_INLINE __m256i nibbles_of(CodePair codes) {
  return _mm256_add_epi16(codes.lower, _mm256_slli_epi16(codes.upper, 4));
}
RONDO_INLINE void store_nibbles(Byte* to, __m256i first, __m256i second) {
  store_bytes(to, _mm256_add_epi8(bytes_of(first, second), _mm256_set1_epi8(int8_t(0x88))));
}

// at_random()'s limits.
RONDO_INLINE CodePair within_seven(CodePair codes) {
  const __m256i least = _mm256_set1_epi16(-7), largest = _mm256_set1_epi16(7);
  return {_mm256_min_epi16(_mm256_max_epi16(codes.lower, least), largest),
          _mm256_min_epi16(_mm256_max_epi16(codes.upper, least), largest)};
}

RONDO_INLINE void encode_int4_at_random(const Byte* values, float inverse, uint32_t seed, uint32_t number, Byte* to) {
  const __m256 factor = _mm256_set1_ps(inverse * float(kChances));
  RandomVectors random(seed, number);
  for (size_t v = 0; v < kHalf; v += 4) {
    const __m256i first = nibbles_of(within_seven(random_codes(values, v, factor, random)));
    const __m256i second = nibbles_of(within_seven(random_codes(values, v + 2, factor, random)));
    store_nibbles(to + 8 * v, first, second);
  }
}

RONDO_INLINE void decode_int4(const Byte* from, float scale, Byte* values) {
  const __m256 factor = _mm256_set1_ps(scale);
  const __m256i eight = _mm256_set1_epi32(8);
  for (size_t v = 0; v < kHalf; ++v) {
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 8 * v)));
    const __m256i lower = _mm256_sub_epi32(_mm256_and_si256(bytes, _mm256_set1_epi32(15)), eight);
    const __m256i upper = _mm256_sub_epi32(_mm256_srli_epi32(bytes, 4), eight);
    store_vector(values + 32 * v, _mm256_mul_ps(_mm256_cvtepi32_ps(lower), factor));
    store_vector(values + 32 * (kHalf + v), _mm256_mul_ps(_mm256_cvtepi32_ps(upper), factor));
  }
}

// --- To nearest.

RONDO_INLINE void encode_int8(const Byte* values, float inverse, Byte* to) {
  const __m256 factor = _mm256_set1_ps(inverse);
  for (size_t v = 0; v < kVectors; v += 4) {
    const __m256i first = _mm256_packs_epi32(nearest8(vector_of(values, v), factor),  //
                                             nearest8(vector_of(values, v + 1), factor));
    const __m256i second =
        _mm256_packs_epi32(nearest8(vector_of(values, v + 2), factor), nearest8(vector_of(values, v + 3), factor));
    store_bytes(to + 8 * v, bytes_of(first, second));
  }
}

// The vectors v and v + 1 of each half, as 16 bits.
RONDO_INLINE CodePair nearest_codes(const Byte* values, size_t v, __m256 factor) {
  return {_mm256_packs_epi32(nearest8(vector_of(values, v), factor), nearest8(vector_of(values, v + 1), factor)),
          _mm256_packs_epi32(nearest8(vector_of(values, kHalf + v), factor),
                             nearest8(vector_of(values, kHalf + v + 1), factor))};
}

RONDO_INLINE void encode_int4(const Byte* values, float inverse, Byte* to) {
  const __m256 factor = _mm256_set1_ps(inverse);
  for (size_t v = 0; v < kHalf; v += 4) {
    store_nibbles(to + 8 * v, nibbles_of(nearest_codes(values, v, factor)),
                  nibbles_of(nearest_codes(values, v + 2, factor)));
  }
}

// --- float8: Format::store() without what NaN, infinity and overflow need.

// round_to() of either sign: 1.5 times a power of two keeps a sum with it between that power and the next one.
template <int kFraction, int kLeastExponent>
RONDO_INLINE Float8 round_signed(Float8 value) {
  constexpr int kLeast = (127 + kLeastExponent) << 23;
  __m256i exponent = _mm256_and_si256(__m256i(value), _mm256_set1_epi32(0x7f800000));
  exponent = _mm256_max_epi32(exponent, _mm256_set1_epi32(kLeast));
  const Float8 adder = Float8(_mm256_add_epi32(exponent, _mm256_set1_epi32(((23 - kFraction) << 23) + (1 << 22))));
  return Float8(_mm256_or_si256(__m256i((value + adder) - adder), sign_of(value)));  // also of a zero
}

struct ScaledE5m2Codec8 : E5m2Codec8 {
  static RONDO_INLINE __m128i encode(Float8 value) { return Float16::encode(round_signed<2, -14>(value)); }
};
struct ScaledE4m3Codec8 : E4m3Codec8 {
  // The float16 of a value 2^8 times smaller, whose highest exponent bit is 0: the rest moves up by one bit.
  static RONDO_INLINE __m128i encode(Float8 value) {
    const __m128i half = Float16::encode(round_signed<3, -6>(value) * 0x1p-8f);
    return _mm_add_epi16(half, _mm_and_si128(half, _mm_set1_epi16(0x7fff)));
  }
};

using ScaledFloat8E4M3 = FloatOfBytes<ScaledE4m3Codec8>;
using ScaledFloat8E5M2 = FloatOfBytes<ScaledE5m2Codec8>;

}  // namespace
}  // namespace rondo
