// Wire formats (wire_codec.h), element by element, for the loops of rows/wire.cc. See element.h on namespaces.
#pragma once

#include "kernels/element.h"

namespace rondo {
namespace {

constexpr size_t kElements = 128;  // of a block
constexpr size_t kScaleBytes = 4;
constexpr uint32_t kInfinityBits = 0x7f800000;

// The bits of the least magnitude that rounds to infinity: 65520 and 0x1.ffp127.
constexpr uint32_t kFloat16Limit = 0x477ff000;
constexpr uint32_t kBfloat16Limit = 0x7f7f8000;

constexpr float kLeastCoded = 0x1p-100f;  // its scale and its inverse are normal numbers

struct Scale {
  float stored;   // what a code is multiplied with
  float inverse;  // what an element is multiplied with; 0: all codes are zero
};
// magnitude: the bits of the block's largest. largest_code: the largest magnitude that a code stands for.
RONDO_INLINE Scale scale_of(uint32_t magnitude, float largest_code) {
  const float largest = float_of(magnitude);
  if (magnitude >= kInfinityBits) return {__builtin_nanf(""), 0.0f};
  if (largest < kLeastCoded) return {0.0f, 0.0f};
  return {largest / largest_code, largest_code / largest};
}

// Where a block's element i is stored, in elements, by the formats that a vector of 16 takes apart into elements of
// even and odd index (FloatPair8).
constexpr RONDO_INLINE size_t paired_place(size_t i) { return i / 16 * 16 + i % 8 * 2 + i % 16 / 8; }

// What the random choices of a block begin with. first: the number of its first element.
RONDO_INLINE uint32_t block_seed(uint64_t seed, uint64_t first) {
  return uint32_t(seed) ^ uint32_t(seed >> 32) * 0x85ebca77u ^ uint32_t(first >> 32);
}
// A word that looks random, by its number: a Weyl sequence through the finalizer of MurmurHash3. One word serves the
// elements i and 64 + i of a block; its number is the block's first plus i. Each takes 15 bits of it: a code times 2^15
// is what nearest() can still round.
constexpr uint32_t kWeyl = 0x9e3779b9u, kMixFirst = 0x85ebca6bu, kMixSecond = 0xc2b2ae35u;
constexpr int kChanceBits = 15;
constexpr int32_t kChances = 1 << kChanceBits;
RONDO_INLINE uint32_t random_word(uint32_t seed, uint32_t number) {
  uint32_t h = number * kWeyl + seed;
  h = (h ^ (h >> 16)) * kMixFirst;
  h = (h ^ (h >> 13)) * kMixSecond;
  return h ^ (h >> 16);
}
RONDO_INLINE int32_t lower_chance(uint32_t word) { return int32_t(word & uint32_t(kChances - 1)); }
RONDO_INLINE int32_t upper_chance(uint32_t word) { return int32_t(word >> (32 - kChanceBits)); }

// Adding 1.5 * 2^23 rounds to an integer, to nearest, ties to even, and leaves it in the low bits.
RONDO_INLINE int32_t nearest(float value) {
  return int32_t(float_bits(plus(value, 12582912.0f))) - int32_t(float_bits(12582912.0f));
}

// value: kChances times what is rounded, which is within kLargest of zero but for a rounding. Of kChances chances,
// 0 .. kChances - 1, as many round up as the fraction has parts: the mean of the codes is value / kChances, rounded to
// a whole number of chances.
template <int32_t kLargest>
RONDO_INLINE int32_t at_random(float value, int32_t chance) {
  const int32_t code = (nearest(value) + chance) >> kChanceBits;
  const int32_t limited = code < kLargest ? code : kLargest;
  return limited > -kLargest ? limited : -kLargest;
}

}  // namespace
}  // namespace rondo
