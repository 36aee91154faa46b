// Wire formats (wire_codec.h), element by element: what the loops of rows/wire.cc and the lanes of a GPU
// (device/wire_pass.h) share. See element.h on namespaces.
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
// even and odd index (FloatPair8); and the element that is stored at p.
constexpr RONDO_INLINE size_t paired_place(size_t i) { return i / 16 * 16 + i % 8 * 2 + i % 16 / 8; }
constexpr RONDO_INLINE size_t paired_element(size_t p) { return p / 16 * 16 + p % 2 * 8 + p % 16 / 2; }

// What the random choices of a block begin with. first: the number of its first element.
RONDO_INLINE uint32_t block_seed(uint64_t seed, uint64_t first) {
  return uint32_t(seed) ^ uint32_t(seed >> 32) * 0x85ebca77u ^ uint32_t(first >> 32);
}
// A number that looks random, for each element: the seed mixed with the element's number (the finalizer of
// MurmurHash3), as 0 .. 1 in steps of 2^-24.
RONDO_INLINE float chance(uint32_t seed, uint32_t number) {
  uint32_t h = number * 0x9e3779b9u + seed;
  h = (h ^ (h >> 16)) * 0x85ebca6bu;
  h = (h ^ (h >> 13)) * 0xc2b2ae35u;
  return times(float(int32_t((h ^ (h >> 16)) >> 8)), 0x1p-24f);
}

// Adding 1.5 * 2^23 rounds to an integer, to nearest, ties to even, and leaves it in the low bits.
RONDO_INLINE int32_t nearest(float value) {
  return int32_t(float_bits(plus(value, 12582912.0f))) - int32_t(float_bits(12582912.0f));
}

// `value` is within kLargest of zero; 128 makes it positive, so that truncation goes down.
template <int32_t kLargest>
RONDO_INLINE int32_t at_random(float value, float random) {
  const int32_t code = int32_t(plus(plus(value, 128.0f), random)) - 128;
  return code < kLargest ? code : kLargest;
}

}  // namespace
}  // namespace rondo
