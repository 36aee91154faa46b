#include "kernels/rows/rows.h"
#include "kernels/wire_block.h"
#ifdef __F16C__
#include "kernels/wire_avx2.h"
#else
#include "kernels/wire_plain.h"
#endif

// Wire formats (wire_codec.h): blocks of 128 float32 elements coded and decoded. See element.h on namespaces.
namespace rondo {
namespace {

// --- Formats without scales. Format::kWidth elements at a time, as vectors hold them.

#ifdef __F16C__
RONDO_INLINE void load_values(const Byte* values, Float8& to) { to = load_unaligned<Float8>(values); }
RONDO_INLINE void load_values(const Byte* values, FloatPair8& to) {
  to = {load_unaligned<Float8>(values), load_unaligned<Float8>(values + sizeof(Float8))};
}
RONDO_INLINE void store_values(Byte* values, Float8 from) { store_vector(values, __m256(from)); }
RONDO_INLINE void store_values(Byte* values, FloatPair8 from) {
  store_vector(values, __m256(from.even));
  store_vector(values + sizeof(Float8), __m256(from.odd));
}
#endif

// kPaired: formats whose wider twins store FloatPair8.
template <bool kPaired>
constexpr RONDO_INLINE size_t place_of(size_t i) {
  return kPaired ? paired_place(i) : i;
}

// factor: 1 for formats without scales, else the inverse of the scale.
template <class Format, bool kPaired>
RONDO_INLINE void encode_elements(const Byte* values, Byte* to, float factor) {
  if constexpr (Format::kWidth == 1) {
    for (size_t i = 0; i < kElements; ++i) {
      Format::store(to + place_of<kPaired>(i) * Format::kBytes, load_unaligned<float>(values + 4 * i) * factor);
    }
  } else {
    for (size_t i = 0; i < kElements; i += Format::kWidth) {
      typename Format::Accumulator value;
      load_values(values + 4 * i, value);
      Format::store(to + i * Format::kBytes, value * factor);
    }
  }
}

// factor: 1 for formats without scales, else the scale.
template <class Format, bool kPaired>
RONDO_INLINE void decode_elements(const Byte* from, Byte* values, float factor) {
  if constexpr (Format::kWidth == 1) {
    for (size_t i = 0; i < kElements; ++i) {
      store_unaligned<float>(values + 4 * i, Format::load(from + place_of<kPaired>(i) * Format::kBytes) * factor);
    }
  } else {
    for (size_t i = 0; i < kElements; i += Format::kWidth) {
      store_values(values + 4 * i, Format::load(from + i * Format::kBytes) * factor);
    }
  }
}

// kLimit: the bits of the least magnitude that becomes infinite.
template <class Format, bool kPaired, uint32_t kLimit>
size_t encode_plain(const WireEncodeCall& call) {
  const Byte* values = static_cast<const Byte*>(call.values);
  Byte* to = static_cast<Byte*>(call.coded);
  size_t bad = call.blocks;
  for (size_t block = 0; block < call.blocks; ++block) {
    if (bad == call.blocks && largest_magnitude(values) >= kLimit) bad = block;
    encode_elements<Format, kPaired>(values, to, 1.0f);
    values += 4 * kElements;
    to += Format::kBytes * kElements;
  }
  return bad;
}

template <class Format, bool kPaired>
void decode_plain(const WireDecodeCall& call) {
  const Byte* from = static_cast<const Byte*>(call.coded);
  Byte* values = static_cast<Byte*>(call.values);
  for (size_t block = 0; block < call.blocks; ++block) {
    decode_elements<Format, kPaired>(from, values, 1.0f);
    values += 4 * kElements;
    from += Format::kBytes * kElements;
  }
}

// --- Formats with a scale a block: Code::kLargest is the largest magnitude that Code stores.

// A block that is coded, but for its scale.
struct BlockCall {
  const Byte* values;
  float inverse;  // of the scale; not 0
  bool stochastic;
  uint32_t seed;    // of the block's random words
  uint32_t number;  // of the first of them
  Byte* to;
};

struct Int8Code {
  static constexpr float kLargest = 127.0f;
  static constexpr size_t kBytes = kElements;
  static constexpr Byte kZeros = 0;  // the code of elements that are zero
  static RONDO_INLINE void encode(const BlockCall& block) {
    if (block.stochastic) {
      encode_int8_at_random(block.values, block.inverse, block.seed, block.number, block.to);
    } else {
      encode_int8(block.values, block.inverse, block.to);
    }
  }
  static RONDO_INLINE void decode(const Byte* from, float scale, Byte* values) { decode_int8(from, scale, values); }
};

struct Int4Code {
  static constexpr float kLargest = 7.0f;
  static constexpr size_t kBytes = kElements / 2;
  static constexpr Byte kZeros = 0x88;
  static RONDO_INLINE void encode(const BlockCall& block) {
    if (block.stochastic) {
      encode_int4_at_random(block.values, block.inverse, block.seed, block.number, block.to);
    } else {
      encode_int4(block.values, block.inverse, block.to);
    }
  }
  static RONDO_INLINE void decode(const Byte* from, float scale, Byte* values) { decode_int4(from, scale, values); }
};

// Scaled: Format, for values that are finite and within its range.
template <class Format, class Scaled, int kLargestCode>
struct FloatCode {
  static constexpr float kLargest = kLargestCode;
  static constexpr size_t kBytes = kElements;
  static constexpr Byte kZeros = 0;
  static RONDO_INLINE void encode(const BlockCall& block) {
    encode_elements<Scaled, true>(block.values, block.to, block.inverse);
  }
  static RONDO_INLINE void decode(const Byte* from, float scale, Byte* values) {
    decode_elements<Format, true>(from, values, scale);
  }
};

// A block that cannot be coded (an element is not finite) is coded as all zeros under the scale NaN, so all of it
// decodes as NaN, and the first such block is returned.
template <class Code>
size_t encode_scaled(const WireEncodeCall& call) {
  const Byte* values = static_cast<const Byte*>(call.values);
  Byte* to = static_cast<Byte*>(call.coded);
  size_t bad = call.blocks;
  for (size_t block = 0; block < call.blocks; ++block) {
    const uint32_t magnitude = largest_magnitude(values);
    if (bad == call.blocks && magnitude >= kInfinityBits) bad = block;
    const Scale scale = scale_of(magnitude, Code::kLargest);
    store_unaligned<float>(to, scale.stored);
    if (scale.inverse == 0.0f) {
      __builtin_memset(to + kScaleBytes, Code::kZeros, Code::kBytes);
    } else {
      // The seed is of the element's number in the call. However a call is cut into slices, the same elements are
      // rounded alike.
      const uint64_t first = call.first + block * kElements;
      Code::encode(
          {values, scale.inverse, call.stochastic, block_seed(call.seed, first), uint32_t(first), to + kScaleBytes});
    }
    values += 4 * kElements;
    to += kScaleBytes + Code::kBytes;
  }
  return bad;
}

template <class Code>
void decode_scaled(const WireDecodeCall& call) {
  const Byte* from = static_cast<const Byte*>(call.coded);
  Byte* values = static_cast<Byte*>(call.values);
  for (size_t block = 0; block < call.blocks; ++block) {
    Code::decode(from + kScaleBytes, load_unaligned<float>(from), values);
    values += 4 * kElements;
    from += kScaleBytes + Code::kBytes;
  }
}

template <class Code>
constexpr WireKernels scaled() {
  return {encode_scaled<Code>, decode_scaled<Code>};
}

}  // namespace

namespace RONDO_KERNEL_SET {

// In the order of WireFormat. The first one codes nothing, and the last one has kernels of its own (pack.cc).
constexpr WireRow kWire = {{{},
                            {encode_plain<Float16, false, kFloat16Limit>, decode_plain<Float16, false>},
                            {encode_plain<Bfloat16, true, kBfloat16Limit>, decode_plain<Bfloat16, true>},
                            scaled<FloatCode<Float8E4M3, ScaledFloat8E4M3, 448>>(),
                            scaled<FloatCode<Float8E5M2, ScaledFloat8E5M2, 57344>>(),
                            scaled<Int8Code>(),
                            scaled<Int4Code>()},
                           {encode_plain<SoftBfloat16, false, kBfloat16Limit>, decode_plain<SoftBfloat16, false>}};

}  // namespace RONDO_KERNEL_SET
}  // namespace rondo
