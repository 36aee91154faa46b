// Element formats: how a stored element becomes a value of the accumulator type and back.
// Part of combine_body.h: compiled once an instruction set, so everything is in an unnamed namespace and nothing here
// calls an inline function of another header (the linker could keep the copy of the wrong instruction set).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/vector_loop.h"

namespace rondo {
namespace {

using Byte = unsigned char;

template <class T>
struct Unaligned {
  typedef T Type __attribute__((aligned(1), may_alias));
};

template <class T>
RONDO_INLINE T load_unaligned(const Byte* from) {
  return *reinterpret_cast<const typename Unaligned<T>::Type*>(from);
}
template <class T>
RONDO_INLINE void store_unaligned(Byte* to, T value) {
  *reinterpret_cast<typename Unaligned<T>::Type*>(to) = value;
}

RONDO_INLINE uint32_t float_bits(float value) { return __builtin_bit_cast(uint32_t, value); }
RONDO_INLINE float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }
RONDO_INLINE uint64_t float_bits(double value) { return __builtin_bit_cast(uint64_t, value); }
RONDO_INLINE double float_of(uint64_t bits) { return __builtin_bit_cast(double, bits); }

// The sign and payload of a NaN made by x86 depend on the operands' order, which compilers change: every NaN result
// becomes one quiet NaN, positive, without payload.
RONDO_INLINE float quiet_nan(float) { return __builtin_nanf(""); }
RONDO_INLINE double quiet_nan(double) { return __builtin_nan(""); }
template <class Real>
RONDO_INLINE Real canonical(Real value) {
  return value == value ? value : quiet_nan(value);
}

// As the processor's minimum and maximum: `right` if the operands are equal or one is NaN.
template <class Real>
RONDO_INLINE Real lesser(Real left, Real right) {
  return left < right ? left : right;
}
template <class Real>
RONDO_INLINE Real greater(Real left, Real right) {
  return left > right ? left : right;
}
template <class Real>
RONDO_INLINE Real nan_if_unordered(Real left, Real right, Real otherwise) {
  return __builtin_isunordered(left, right) ? quiet_nan(left) : otherwise;
}

// Integers are folded as unsigned numbers of their own width, so that overflow wraps, but for min and max (Ordered);
// Value is what divisions see.
template <class Signed, class Unsigned>
struct Integer {
  using Value = Signed;
  using Accumulator = Unsigned;
  static constexpr size_t kBytes = sizeof(Unsigned);
  static constexpr size_t kWidth = 1;  // elements an accumulator holds
  static constexpr Unsigned kOne = 1;
  static RONDO_INLINE Unsigned load(const Byte* from) { return load_unaligned<Unsigned>(from); }
  static RONDO_INLINE void store(Byte* to, Unsigned value) { store_unaligned<Unsigned>(to, value); }
  static RONDO_INLINE Unsigned truth(const Byte* from) { return load(from) != 0; }
};
template <class Format>
using Ordered = Integer<typename Format::Value, typename Format::Value>;

using Int8 = Integer<int8_t, uint8_t>;
using Uint8 = Integer<uint8_t, uint8_t>;
using Int16 = Integer<int16_t, uint16_t>;
using Uint16 = Integer<uint16_t, uint16_t>;
using Int32 = Integer<int32_t, uint32_t>;
using Uint32 = Integer<uint32_t, uint32_t>;
using Int64 = Integer<int64_t, uint64_t>;
using Uint64 = Integer<uint64_t, uint64_t>;

template <class Real, class Bits, Bits kOneBits>
struct Float {
  using Value = Real;
  using Accumulator = Real;
  static constexpr size_t kBytes = sizeof(Real);
  static constexpr size_t kWidth = 1;
  static constexpr bool kScalesAverages = false;
  static constexpr Bits kOne = kOneBits;
  static RONDO_INLINE Real load(const Byte* from) { return load_unaligned<Real>(from); }
  static RONDO_INLINE void store(Byte* to, Real value) { store_unaligned<Real>(to, canonical(value)); }
  // Everything but +0 and -0 is true, NaN too.
  static RONDO_INLINE Bits truth(const Byte* from) { return Bits(load_unaligned<Bits>(from) << 1) != 0; }
};
using Float32 = Float<float, uint32_t, 0x3f800000u>;
using Float64 = Float<double, uint64_t, 0x3ff0000000000000u>;

// 16-bit formats: Accumulator is float32, the stored bits are uint16_t.
template <class Codec, uint16_t kOneBits>
struct Small {
  using Value = float;
  using Accumulator = float;
  static constexpr size_t kBytes = 2;
  static constexpr size_t kWidth = 1;
  static constexpr bool kScalesAverages = Codec::kScalesAverages;
  static constexpr uint16_t kOne = kOneBits;
  static RONDO_INLINE float load(const Byte* from) { return Codec::decode(load_unaligned<uint16_t>(from)); }
  static RONDO_INLINE void store(Byte* to, float value) { store_unaligned<uint16_t>(to, Codec::encode(value)); }
  static RONDO_INLINE float round(float value) { return Codec::decode(Codec::encode(value)); }
  static RONDO_INLINE uint16_t truth(const Byte* from) { return uint16_t(load_unaligned<uint16_t>(from) << 1) != 0; }
};

struct BfloatCodec {
  static constexpr bool kScalesAverages = false;
  static RONDO_INLINE float decode(uint32_t stored) { return float_of(stored << 16); }
  // To nearest, ties to even; overflow carries into the infinity; NaN becomes the quiet NaN.
  static RONDO_INLINE uint16_t encode(float value) {
    const uint32_t bits = float_bits(value);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return uint16_t(value == value ? rounded : 0x7fc0u);
  }
};

struct HalfCodec {
  static constexpr bool kScalesAverages = true;  // sums of contributions could leave its range
  static RONDO_INLINE float decode(uint32_t stored) {
    const uint32_t sign = (stored & 0x8000) << 16;
    const uint32_t magnitude = (stored & 0x7fff) << 13;  // exponent and fraction at float32's place, bias 15
    const uint32_t normal = magnitude + (112u << 23);    // bias 127
    // A denormal is its fraction in units of 2^-24: give it the exponent of 2^-14 and take 2^-14 away, exactly.
    const uint32_t denormal = float_bits(float_of(magnitude + (113u << 23)) - 0x1p-14f);
    const uint32_t special = magnitude + (224u << 23);  // infinity and NaN: exponent 31 becomes 255
    uint32_t bits = magnitude < (1u << 23) ? denormal : normal;
    bits = magnitude >= (31u << 23) ? special : bits;
    return float_of(bits | sign);
  }
  // To nearest, ties to even; 65520 and more become the infinity; NaN becomes the quiet NaN.
  static RONDO_INLINE uint16_t encode(float value) {
    const uint32_t bits = float_bits(value);
    const uint32_t sign = (bits >> 16) & 0x8000;
    const uint32_t magnitude = bits & 0x7fffffff;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    // Below 2^-14: adding 0.5, whose unit in the last place is 2^-24 like a denormal's, rounds as it should.
    const uint32_t denormal = float_bits(float_of(magnitude) + 0.5f) - 0x3f000000;
    uint32_t rounded = normal < 0x7c00 ? normal : 0x7c00;
    rounded = magnitude < (113u << 23) ? denormal : rounded;
    return uint16_t(value == value ? (rounded | sign) : 0x7e00u);
  }
};

using SoftBfloat16 = Small<BfloatCodec, 0x3f80>;
using SoftFloat16 = Small<HalfCodec, 0x3c00>;

}  // namespace
}  // namespace rondo

#ifdef __F16C__
#include "kernels/element_avx2.h"
#else
namespace rondo {
namespace {
using Float16 = SoftFloat16;
using Bfloat16 = SoftBfloat16;
}  // namespace
}  // namespace rondo
#endif
