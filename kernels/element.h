// Element formats: how a stored element becomes a value of the accumulator type and back.
// Part of combine_body.h: compiled once an instruction set, so everything is in an unnamed namespace and nothing here
// calls an inline function of another header (the linker could keep the copy of the wrong instruction set). nvcc
// compiles the formats of one element for GPUs, too (device/fold_pass.h): decode() and encode() are shared, loads and
// stores are not.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/vector_loop.h"

namespace rondo {
namespace {

using Byte = unsigned char;

// A type with alignment 1 that may alias any other: loads and stores of it are legal anywhere, and cost nothing more on
// these processors.
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

// Overloads, so that one template serves every width and vectors of it.
constexpr RONDO_INLINE uint32_t float_bits(float value) { return __builtin_bit_cast(uint32_t, value); }
constexpr RONDO_INLINE float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }
RONDO_INLINE uint64_t float_bits(double value) { return __builtin_bit_cast(uint64_t, value); }
RONDO_INLINE double float_of(uint64_t bits) { return __builtin_bit_cast(double, bits); }

// Sum and product of accumulators, each rounded by itself.
template <class A>
RONDO_INLINE A plus(A left, A right) {
  return A(left + right);
}
template <class A, class B>
RONDO_INLINE A times(A left, B right) {
  return left * right;
}
#ifdef __CUDA_ARCH__
// ptxas may fuse instructions without .rn into one multiplication and addition.
RONDO_INLINE float plus(float left, float right) { return __fadd_rn(left, right); }
RONDO_INLINE double plus(double left, double right) { return __dadd_rn(left, right); }
RONDO_INLINE float times(float left, float right) { return __fmul_rn(left, right); }
RONDO_INLINE double times(double left, double right) { return __dmul_rn(left, right); }
#endif

// The sign and payload of a NaN made by x86 depend on the operands' order, which compilers change: every NaN result
// becomes one quiet NaN, positive, without payload.
RONDO_INLINE float quiet_nan(float) { return __builtin_nanf(""); }
RONDO_INLINE double quiet_nan(double) { return __builtin_nan(""); }
template <class Real>
RONDO_INLINE Real canonical(Real value) {
  return value == value ? value : quiet_nan(value);
}

// The processor's minimum and maximum: `right` if the operands are equal or one is NaN.
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
#ifdef __CUDACC__
  return left != left || right != right ? quiet_nan(left) : otherwise;
#else
  return __builtin_isunordered(left, right) ? quiet_nan(left) : otherwise;
#endif
}

// Integers are folded as unsigned numbers of their own width, so that overflow wraps: signed overflow is undefined in
// C++, and would let the compiler change results. min and max need the sign (Ordered); Value is what divisions see.
template <class Signed, class Unsigned>
struct Integer {
  using Value = Signed;
  using Accumulator = Unsigned;
  static constexpr size_t kBytes = sizeof(Unsigned);
  static constexpr size_t kWidth = 1;  // elements an accumulator holds
  static constexpr Unsigned kOne = 1;
  using Stored = Unsigned;
  static RONDO_INLINE Unsigned decode(Stored stored) { return stored; }
  static RONDO_INLINE Stored encode(Unsigned value) { return value; }
  static RONDO_INLINE Unsigned load(const Byte* from) { return load_unaligned<Unsigned>(from); }
  static RONDO_INLINE void store(Byte* to, Unsigned value) { store_unaligned<Unsigned>(to, value); }
  static RONDO_INLINE bool truth(Stored stored) { return stored != 0; }
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

// Floats that are their own accumulator: a store changes nothing but NaN. kOneBits: the number 1, which Truth stores.
// kScalesAverages: an average multiplies each contribution by 1/world, since the sum could leave the format's range.
template <class Real, class Bits, Bits kOneBits>
struct Float {
  using Value = Real;
  using Accumulator = Real;
  static constexpr size_t kBytes = sizeof(Real);
  static constexpr size_t kWidth = 1;
  static constexpr bool kScalesAverages = false;
  static constexpr Bits kOne = kOneBits;
  using Stored = Bits;
  static RONDO_INLINE Real decode(Stored stored) { return float_of(stored); }
  static RONDO_INLINE Stored encode(Real value) { return float_bits(canonical(value)); }
  static RONDO_INLINE Real load(const Byte* from) { return load_unaligned<Real>(from); }
  static RONDO_INLINE void store(Byte* to, Real value) { store_unaligned<Real>(to, canonical(value)); }
  // Everything but +0 and -0 is true, NaN too.
  static RONDO_INLINE bool truth(Stored stored) { return Bits(stored << 1) != 0; }
};
using Float32 = Float<float, uint32_t, 0x3f800000u>;
using Float64 = Float<double, uint64_t, 0x3ff0000000000000u>;

// Formats smaller than their accumulator, which is float32: Bits holds a stored element. Every value of theirs is a
// float32 exactly, so loading rounds nothing and only the store does.
template <class Codec, class Bits, Bits kOneBits>
struct Small {
  using Value = float;
  using Accumulator = float;
  static constexpr size_t kBytes = sizeof(Bits);
  static constexpr size_t kWidth = 1;
  static constexpr bool kScalesAverages = Codec::kScalesAverages;
  static constexpr Bits kOne = kOneBits;
  using Stored = Bits;
  static RONDO_INLINE float decode(Stored stored) { return Codec::decode(stored); }
  static RONDO_INLINE Stored encode(float value) { return Bits(Codec::encode(value)); }
  static RONDO_INLINE float load(const Byte* from) { return decode(load_unaligned<Bits>(from)); }
  static RONDO_INLINE void store(Byte* to, float value) { store_unaligned<Bits>(to, encode(value)); }
  static RONDO_INLINE float round(float value) { return Codec::decode(Codec::encode(value)); }
  static RONDO_INLINE bool truth(Stored stored) { return Bits(stored << 1) != 0; }
};

// A format whose elements are folded as truth values: 0 or 1, stored as 0 or 1 of the dtype.
template <class Format>
struct Truth {
  using Stored = typename Format::Stored;
  using Value = Stored;
  using Accumulator = Stored;
  static constexpr size_t kBytes = Format::kBytes;
  static constexpr size_t kWidth = 1;
  static RONDO_INLINE Stored decode(Stored stored) { return Format::truth(stored); }
  static RONDO_INLINE Stored encode(Stored value) { return value != 0 ? Format::kOne : Stored(0); }
  static RONDO_INLINE Stored load(const Byte* from) { return decode(load_unaligned<Stored>(from)); }
  static RONDO_INLINE void store(Byte* to, Stored value) { store_unaligned<Stored>(to, encode(value)); }
};

#ifdef __CUDA_ARCH__
// A GPU's own conversions: those to float32 are exact, the others round to nearest, ties to even (PTX ISA, cvt). They
// give other bits of a NaN, and the two to 8 bits (compute capability 8.9) the largest finite value where these formats
// overflow.
RONDO_INLINE uint32_t to_bfloat(float value) {
  uint16_t stored;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(stored) : "f"(value));
  return stored;
}
RONDO_INLINE float from_half(uint32_t stored) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(uint16_t(stored)));
  return value;
}
RONDO_INLINE uint32_t to_half(float value) {
  uint16_t stored;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(stored) : "f"(value));
  return stored;
}
#if __CUDA_ARCH__ >= 890
RONDO_INLINE float from_e4m3(uint32_t stored) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(uint16_t(stored)));
  return from_half(halves & 0xffff);
}
RONDO_INLINE uint32_t to_e4m3(float value) {
  uint16_t stored;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(stored) : "f"(0.0f), "f"(value));
  return stored;
}
RONDO_INLINE uint32_t to_e5m2(float value) {
  uint16_t stored;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(stored) : "f"(0.0f), "f"(value));
  return stored;
}
#endif
#endif

struct BfloatCodec {
  static constexpr bool kScalesAverages = false;
  static RONDO_INLINE float decode(uint32_t stored) { return float_of(stored << 16); }
  // To nearest, ties to even; overflow carries into the infinity; NaN becomes the quiet NaN.
  static RONDO_INLINE uint32_t encode(float value) {
#ifdef __CUDA_ARCH__
    const uint32_t rounded = to_bfloat(value);
#else
    const uint32_t bits = float_bits(value);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
#endif
    return value == value ? rounded : 0x7fc0u;
  }
};

// A sign, then the exponent (bias kBias), then kFraction bits. kLargest: the greatest finite value, as stored; the next
// one is what overflow gives. kNan: as stored, positive. Sums of contributions could leave such ranges.
template <int kStoredBits, int kFraction, uint32_t kBias, uint32_t kLargest, uint32_t kNan>
struct NarrowCodec {
  static constexpr bool kScalesAverages = true;
  static constexpr uint32_t kSign = 1u << (kStoredBits - 1);
  static constexpr int kDropped = 23 - kFraction;  // fraction bits of a float32 too many
  static constexpr uint32_t kRebias = (127 - kBias) << 23;
  static constexpr uint32_t kLeastNormal = kRebias + (1u << 23);                // as a float32
  static constexpr uint32_t kUnitAdder = (127 + 24 - kBias - kFraction) << 23;  // its last place is a denormal's unit
  static constexpr uint32_t kSpecial = (kLargest + 1) << kDropped;              // infinity and NaN, or NaN alone
  static constexpr RONDO_INLINE float decode(uint32_t stored) {
    const uint32_t sign = (stored & kSign) << (32 - kStoredBits);
    const uint32_t magnitude = (stored & (kSign - 1)) << kDropped;  // exponent and fraction at float32's place
    // A denormal gets the exponent of the least normal value, which is taken away again, exactly.
    const uint32_t denormal = float_bits(float_of(magnitude + kLeastNormal) - float_of(kLeastNormal));
    uint32_t bits = magnitude < (1u << 23) ? denormal : magnitude + kRebias;
    bits = magnitude >= kSpecial ? magnitude | (255u << 23) : bits;
    return float_of(bits | sign);
  }
  // To nearest, ties to even; every NaN becomes kNan.
  static RONDO_INLINE uint32_t encode(float value) {
    const uint32_t bits = float_bits(value);
    const uint32_t sign = (bits >> (32 - kStoredBits)) & kSign;
    const uint32_t magnitude = bits & 0x7fffffff;
    constexpr uint32_t kHalf = 1u << (kDropped - 1);
    const uint32_t normal = (magnitude - kRebias + (kHalf - 1) + ((magnitude >> kDropped) & 1)) >> kDropped;
    const uint32_t denormal = float_bits(float_of(magnitude) + float_of(kUnitAdder)) - kUnitAdder;
    uint32_t rounded = normal < kLargest + 1 ? normal : kLargest + 1;
    rounded = magnitude < kLeastNormal ? denormal : rounded;
    if constexpr (kLargest + 1 == kNan) {
      return value != value || rounded == kNan ? kNan : rounded | sign;
    } else {
      return value != value ? kNan : rounded | sign;
    }
  }
};

#if defined(__aarch64__) && !defined(__CUDACC__)
// Every core of Arm's has these; to nearest, ties to even, where FPCR says so (machine.h).
RONDO_INLINE float from_half(uint32_t stored) { return __builtin_bit_cast(__fp16, uint16_t(stored)); }
RONDO_INLINE uint32_t to_half(float value) { return __builtin_bit_cast(uint16_t, __fp16(value)); }
#define RONDO_CONVERTS_HALF
#endif

struct HalfCodec : NarrowCodec<16, 10, 15, 0x7bff, 0x7e00> {
#if defined(__CUDA_ARCH__) || defined(RONDO_CONVERTS_HALF)
  static RONDO_INLINE float decode(uint32_t stored) { return from_half(stored); }
  static RONDO_INLINE uint32_t encode(float value) { return value == value ? to_half(value) : 0x7e00u; }
#endif
};

// Eight bits are looked up: as fast as the arithmetic on vectors of SSE2, and a tenth of its code. By a GPU they are
// computed: a table's loads would stand beside those of the elements.
template <class Codec>
struct ByteCodec : Codec {
  struct Values {
    float of[256];
  };
  static constexpr Values all() {
    Values values = {};
    for (uint32_t stored = 0; stored < 256; ++stored) values.of[stored] = Codec::decode(stored);
    return values;
  }
  static constexpr Values kValues = all();
  static RONDO_INLINE float decode(uint32_t stored) { return kValues.of[stored]; }
};

struct E5m2Codec : ByteCodec<NarrowCodec<8, 2, 15, 0x7b, 0x7e>> {
#ifdef __CUDA_ARCH__
  // The upper half of a float16.
  static RONDO_INLINE float decode(uint32_t stored) { return from_half(stored << 8); }
#if __CUDA_ARCH__ >= 890
  // From half way behind the largest value on: infinity.
  static RONDO_INLINE uint32_t encode(float value) {
    const uint32_t bits = float_bits(value), magnitude = bits & 0x7fffffff;
    const uint32_t coded = magnitude < float_bits(61440.0f) ? to_e5m2(value) : (bits >> 24 & 0x80) | 0x7c;
    return value == value ? coded : 0x7eu;
  }
#endif
#endif
};
// No infinity: overflow is the NaN.
struct E4m3Codec : ByteCodec<NarrowCodec<8, 3, 7, 0x7e, 0x7f>> {
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 890
  static RONDO_INLINE float decode(uint32_t stored) { return from_e4m3(stored); }
  // Behind half way from the largest value on, which is even.
  static RONDO_INLINE uint32_t encode(float value) {
    return (float_bits(value) & 0x7fffffff) <= float_bits(464.0f) ? to_e4m3(value) : 0x7fu;
  }
#else
  // At a float16's place it is 2^8 times too small, a denormal, too.
  static RONDO_INLINE float decode(uint32_t stored) {
    const float value = times(from_half((stored & 0x80) << 8 | (stored & 0x7f) << 7), 256.0f);
    return (stored & 0x7f) == 0x7f ? quiet_nan(value) : value;
  }
#endif
#endif
};

using SoftBfloat16 = Small<BfloatCodec, uint16_t, 0x3f80>;
using SoftFloat16 = Small<HalfCodec, uint16_t, 0x3c00>;
using SoftFloat8E4M3 = Small<E4m3Codec, uint8_t, 0x38>;
using SoftFloat8E5M2 = Small<E5m2Codec, uint8_t, 0x3c>;

}  // namespace
}  // namespace rondo

#ifdef __F16C__
#include "kernels/element_avx2.h"
#else
namespace rondo {
namespace {
using Float16 = SoftFloat16;
using Bfloat16 = SoftBfloat16;
using Float8E4M3 = SoftFloat8E4M3;
using Float8E5M2 = SoftFloat8E5M2;
}  // namespace
}  // namespace rondo
#endif
