// What one lane of a warp does in coding a block of a wire format: four elements. The arithmetic is wire_block.h's and
// element.h's. Compiled by nvcc for GPUs, and for processors by host_wire.cc, which is how tests compare its bytes with
// wire_encode().
#pragma once

#include "kernels/device/device_wire.h"
#include "kernels/device/fold_pass.h"
#include "kernels/wire_block.h"

namespace rondo {
namespace {

constexpr int kLanes = 32;
constexpr int kEach = int(kElements) / kLanes;

// --- Codes: kBits an element. element(lane, k): the k-th of a lane, in the order in which they are stored.

// kPaired: as paired_place() stores them. kLimit: bits of the least magnitude that becomes infinite.
template <class FormatType, bool kPaired, uint32_t kLimitBits>
struct PlainLane {
  using Format = FormatType;
  static constexpr bool kHasScale = false;
  static constexpr float kLargest = 0;
  static constexpr uint32_t kLimit = kLimitBits;
  static constexpr int kBits = int(Format::kBytes) * 8;
  static RONDO_INLINE size_t element(int lane, int k) {
    const size_t place = size_t(lane * kEach + k);
    return kPaired ? paired_element(place) : place;
  }
  static RONDO_INLINE uint32_t encode(float value, const DeviceWire&, uint64_t) { return Format::encode(value); }
  static RONDO_INLINE uint32_t encode_zero() { return 0; }
  static RONDO_INLINE float decode(uint32_t code) { return Format::decode(typename Format::Stored(code)); }
};

template <class Format, int kLargestCode>
struct FloatLane : PlainLane<Format, true, kInfinityBits> {
  static constexpr bool kHasScale = true;
  static constexpr float kLargest = kLargestCode;
};

// kZero: the code of 0.
template <int kLargestCode, int kCodeBits, int kZero>
struct IntegerLane {
  static constexpr bool kHasScale = true;
  static constexpr float kLargest = kLargestCode;
  static constexpr uint32_t kLimit = kInfinityBits;
  static constexpr int kBits = kCodeBits;
  // Bytes of two codes have an element of the first half of the block, and one of the second.
  static RONDO_INLINE size_t element(int lane, int k) {
    if (kBits == 8) return size_t(lane * kEach + k);
    return size_t(lane * kEach + k) / 2 + size_t(k % 2) * (kElements / 2);
  }
  static RONDO_INLINE uint32_t encode(float value, const DeviceWire& wire, uint64_t index) {
    int32_t code = nearest(value);
    if (wire.stochastic) {
      const uint64_t first = wire.first + index / kElements * kElements;
      const uint32_t place = uint32_t(index % kElements), half = uint32_t(kElements / 2);
      const uint32_t word = random_word(block_seed(wire.seed, first), uint32_t(first) + place % half);
      code = at_random<kLargestCode>(times(value, float(kChances)),
                                     place < half ? lower_chance(word) : upper_chance(word));
    }
    return uint32_t(code + kZero) & ((1u << kBits) - 1);
  }
  static RONDO_INLINE uint32_t encode_zero() { return kZero; }
  static RONDO_INLINE float decode(uint32_t code) {
    return kZero == 0 ? float(int32_t(int8_t(code))) : float(int32_t(code) - kZero);
  }
};

using Float16Lane = PlainLane<SoftFloat16, false, kFloat16Limit>;
using Bfloat16Lane = PlainLane<SoftBfloat16, true, kBfloat16Limit>;
using Float8E4M3Lane = FloatLane<SoftFloat8E4M3, 448>;
using Float8E5M2Lane = FloatLane<SoftFloat8E5M2, 57344>;
using Int8Lane = IntegerLane<127, 8, 0>;
using Int4Lane = IntegerLane<7, 4, 8>;

// --- A lane's part of a block

template <class Code>
constexpr size_t kBlockBytesOf = (Code::kHasScale ? kScaleBytes : 0) + kElements* Code::kBits / 8;

struct LaneValues {
  float of[kEach];
  uint32_t magnitude;  // the bits of the largest
  uint64_t unfit;      // the first element that does not fit; wire.count: all do
};

// Elements beyond the last are zero.
template <class Code>
RONDO_INLINE LaneValues load_lane(const DeviceWire& wire, uint64_t block, int lane) {
  LaneValues values = {{}, 0, wire.count};
  RONDO_UNROLL
  for (int k = 0; k < kEach; ++k) {
    const uint64_t index = block * kElements + Code::element(lane, k);
    const uint32_t bits = index < wire.count ? load_anywhere<uint32_t>(wire.values, index) : 0;
    const uint32_t magnitude = bits & 0x7fffffffu;
    values.of[k] = float_of(bits);
    values.magnitude = values.magnitude > magnitude ? values.magnitude : magnitude;
    if (magnitude >= Code::kLimit && index < values.unfit) values.unfit = index;
  }
  return values;
}

// Where a lane's codes lie.
template <class Code>
RONDO_INLINE Byte* lane_codes(const DeviceWire& wire, uint64_t block, int lane) {
  return static_cast<Byte*>(wire.coded) + block * kBlockBytesOf<Code> + (Code::kHasScale ? kScaleBytes : 0) +
         size_t(lane) * (kEach * Code::kBits / 8);
}

// A lane's codes as one word of 16, 32 or 64 bits.
template <int kBits>
struct LaneWord;
template <>
struct LaneWord<4> {
  using Type = uint16_t;
};
template <>
struct LaneWord<8> {
  using Type = uint32_t;
};
template <>
struct LaneWord<16> {
  using Type = uint64_t;
};

// magnitude: the bits of the block's largest.
template <class Code>
RONDO_INLINE void encode_lane(const DeviceWire& wire, uint64_t block, int lane, const LaneValues& values,
                              uint32_t magnitude) {
  Scale scale = {1.0f, 1.0f};
  if constexpr (Code::kHasScale) {
    scale = scale_of(magnitude, Code::kLargest);
    if (lane == 0)
      store_anywhere<uint32_t>(lane_codes<Code>(wire, block, 0) - kScaleBytes, 0, float_bits(scale.stored));
  }
  using Word = typename LaneWord<Code::kBits>::Type;
  uint64_t word = 0;
  RONDO_UNROLL
  for (int k = 0; k < kEach; ++k) {
    const uint64_t index = block * kElements + Code::element(lane, k);
    const bool zero = scale.inverse == 0.0f;
    const float scaled = Code::kHasScale ? times(values.of[k], scale.inverse) : values.of[k];
    const uint32_t code = zero ? Code::encode_zero() : Code::encode(scaled, wire, index);
    word |= uint64_t(code) << (k * Code::kBits);
  }
  store_anywhere<Word>(lane_codes<Code>(wire, block, lane), 0, Word(word));
}

template <class Code>
RONDO_INLINE void decode_lane(const DeviceWire& wire, uint64_t block, int lane) {
  float scale = 1.0f;
  if constexpr (Code::kHasScale) {
    scale = float_of(load_anywhere<uint32_t>(lane_codes<Code>(wire, block, 0) - kScaleBytes, 0));
  }
  using Word = typename LaneWord<Code::kBits>::Type;
  const uint64_t word = load_anywhere<Word>(lane_codes<Code>(wire, block, lane), 0);
  RONDO_UNROLL
  for (int k = 0; k < kEach; ++k) {
    const uint64_t index = block * kElements + Code::element(lane, k);
    const float value = Code::decode(uint32_t(word >> (k * Code::kBits)) & ((1u << Code::kBits) - 1));
    if (index < wire.count) {
      store_anywhere<uint32_t>(wire.values, index, float_bits(Code::kHasScale ? times(value, scale) : value));
    }
  }
}

// --- Every format: Maker::of<Code>() is what a code becomes, an entry of an array by WireFormat.
template <class Maker>
struct WireLanes {
  typename Maker::Entry of[kWireFormats];
};
template <class Maker>
constexpr WireLanes<Maker> wire_lanes() {
  return {{{},
           Maker::template of<Float16Lane>(),
           Maker::template of<Bfloat16Lane>(),
           Maker::template of<Float8E4M3Lane>(),
           Maker::template of<Float8E5M2Lane>(),
           Maker::template of<Int8Lane>(),
           Maker::template of<Int4Lane>()}};
}

}  // namespace
}  // namespace rondo
