#include "kernels/element.h"
#include "kernels/rows/rows.h"

// The format that loses nothing (pack.h has its bytes): plain loops over bytes and words of eight of them, which
// compilers vectorise. 64 KiB in cache, Intel with AVX-512, 2026-11-27, GB/s to and from: bfloat16 9 and 9 (AVX2 10 and
// 8, baseline 5.7 and 5.4), float32 10 and 14. See element.h on namespaces.
namespace rondo {
namespace {

// kPackedBlock of pack.h, whose header these units do not include.
constexpr size_t kElements = 256;  // of a block
constexpr size_t kHalfBytes = 2 * kElements;
constexpr size_t kCodeBytes = kElements / 4 + kElements / 8;
constexpr size_t kMostEscapes = kElements - kCodeBytes - 1;  // more do not gain
constexpr Byte kEscape = 7, kAsTheyAre = 255;
constexpr uint64_t kOnes = 0x0101010101010101;

// A block's codes, a byte each, as words: eight codes a word.
struct Codes {
  uint64_t words[kElements / 8];
};

// Bit 8 b + k: element 64 group + 8 k + b escapes. Adding 0x80 - kEscape sets the top bit of a byte whose code is
// kEscape. Codes are at most that, so no byte carries into the next.
RONDO_INLINE uint64_t escapes_of(const Codes& codes, size_t group) {
  uint64_t mask = 0;
  for (size_t k = 0; k < 8; ++k) {
    mask |= ((codes.words[8 * group + k] + (0x80 - kEscape) * kOnes) & 0x80 * kOnes) >> (7 - k);
  }
  return mask;
}
// The element that the lowest bit of the mask stands for.
RONDO_INLINE size_t element_of(uint64_t mask, size_t group) {
  const auto bit = static_cast<size_t>(__builtin_ctzll(mask));
  return 64 * group + 8 * (bit % 8) + bit / 8;
}

// Two bits of each code: four quarters of the block in a byte; then the third: eight eighths.
RONDO_INLINE void store_codes(const Codes& codes, Byte* to) {
  for (size_t i = 0; i < 8; ++i) {
    uint64_t word = 0;
    for (size_t k = 0; k < 4; ++k) word |= (codes.words[8 * k + i] & 3 * kOnes) << (2 * k);
    store_unaligned<uint64_t>(to + 8 * i, word);
  }
  for (size_t i = 0; i < 4; ++i) {
    uint64_t word = 0;
    for (size_t k = 0; k < 8; ++k) word |= (codes.words[4 * k + i] >> 2 & kOnes) << k;
    store_unaligned<uint64_t>(to + kElements / 4 + 8 * i, word);
  }
}
RONDO_INLINE void load_codes(const Byte* from, Codes& codes) {
  for (size_t i = 0; i < 8; ++i) {
    const uint64_t word = load_unaligned<uint64_t>(from + 8 * i);
    for (size_t k = 0; k < 4; ++k) codes.words[8 * k + i] = word >> (2 * k) & 3 * kOnes;
  }
  for (size_t i = 0; i < 4; ++i) {
    const uint64_t word = load_unaligned<uint64_t>(from + kElements / 4 + 8 * i);
    for (size_t k = 0; k < 8; ++k) codes.words[4 * k + i] |= (word >> k & kOnes) << 2;
  }
}

// The upper half of element i, which is a bfloat16.
template <bool kWide>
RONDO_INLINE uint16_t upper_half(const Byte* values, size_t i) {
  return kWide ? load_unaligned<uint16_t>(values + 4 * i + 2) : load_unaligned<uint16_t>(values + 2 * i);
}

// Upper halves, coded. Returns the bytes behind `to`, or 0: they do not gain.
template <bool kWide>
RONDO_INLINE size_t pack_halves(const Byte* values, Byte* header, Byte* to) {
  Byte exponents[kElements], escaped[kElements];
  for (size_t i = 0; i < kElements; ++i) {
    const uint16_t half = upper_half<kWide>(values, i);
    exponents[i] = Byte(half >> 7);
    to[i] = Byte((half & 0x7f) | (half >> 8 & 0x80));
  }
  Byte largest = 0;
  for (size_t i = 0; i < kElements; ++i) largest = exponents[i] > largest ? exponents[i] : largest;
  Codes codes;
  Byte* const each = reinterpret_cast<Byte*>(codes.words);
  for (size_t i = 0; i < kElements; ++i) {
    const Byte below = Byte(largest - exponents[i]);
    each[i] = below < kEscape ? below : kEscape;
  }
  size_t count = 0;
  for (size_t group = 0; group < kElements / 64; ++group) {
    for (uint64_t mask = escapes_of(codes, group); mask != 0; mask &= mask - 1) {
      escaped[count++] = exponents[element_of(mask, group)];
    }
  }
  if (count > kMostEscapes) return 0;
  header[0] = largest;
  header[1] = Byte(count);
  store_codes(codes, to + kElements);
  __builtin_memcpy(to + kElements + kCodeBytes, escaped, count);
  return kElements + kCodeBytes + count;
}

// kWide: float32, whose lower halves follow those bytes, unless all of a block's are 0.
template <bool kWide>
size_t pack(const PackCall& call) {
  const Byte* values = static_cast<const Byte*>(call.values);
  Byte* const begin = static_cast<Byte*>(call.coded);
  Byte* to = begin;
  for (size_t block = 0; block < call.blocks; ++block) {
    Byte* const header = to;
    to += kWide ? 3 : 2;
    const size_t bytes = pack_halves<kWide>(values, header, to);
    if (bytes == 0) {
      header[0] = 0;
      header[1] = kAsTheyAre;
      for (size_t i = 0; i < kElements; ++i) store_unaligned<uint16_t>(to + 2 * i, upper_half<kWide>(values, i));
    }
    to += bytes == 0 ? kHalfBytes : bytes;
    if (kWide) {
      // Floats that were bfloat16 before have lower halves of 0, which are left out.
      uint32_t any = 0;
      for (size_t i = 0; i < kElements; ++i) any |= load_unaligned<uint32_t>(values + 4 * i) & 0xffff;
      header[2] = any != 0;
      if (any != 0) {
        for (size_t i = 0; i < kElements; ++i) {
          store_unaligned<uint16_t>(to + 2 * i, uint16_t(load_unaligned<uint32_t>(values + 4 * i)));
        }
        to += kHalfBytes;
      }
    }
    values += (kWide ? 4 : 2) * kElements;
  }
  return size_t(to - begin);
}

// False: the codes escape another number of times than `escapes`.
RONDO_INLINE bool unpack_halves(Byte largest, Byte escapes, const Byte* from, uint16_t* halves) {
  Codes codes;
  load_codes(from + kElements, codes);
  uint64_t masks[kElements / 64];
  size_t count = 0;
  for (size_t group = 0; group < kElements / 64; ++group) {
    masks[group] = escapes_of(codes, group);
    count += size_t(__builtin_popcountll(masks[group]));
  }
  if (count != escapes) return false;
  Byte* const exponents = reinterpret_cast<Byte*>(codes.words);
  for (size_t i = 0; i < kElements; ++i) exponents[i] = Byte(largest - exponents[i]);
  const Byte* escaped = from + kElements + kCodeBytes;
  for (size_t group = 0; group < kElements / 64; ++group) {
    for (uint64_t mask = masks[group]; mask != 0; mask &= mask - 1) exponents[element_of(mask, group)] = *escaped++;
  }
  for (size_t i = 0; i < kElements; ++i) {
    halves[i] = uint16_t((from[i] & 0x7f) | exponents[i] << 7 | (from[i] & 0x80) << 8);
  }
  return true;
}

// Read once: the bytes may lie in memory that another process writes, and what was checked is what counts.
RONDO_INLINE Byte read_once(const Byte* from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }

// What does not fit ends it: a length, a count of escapes, a flag. Values of the blocks before are written then.
template <bool kWide>
size_t unpack(const UnpackCall& call) {
  constexpr size_t kHeader = kWide ? 3 : 2;
  const Byte* const begin = static_cast<const Byte*>(call.coded);
  const Byte* const end = begin + call.bytes;
  const Byte* from = begin;
  Byte* values = static_cast<Byte*>(call.values);
  for (size_t block = 0; block < call.blocks; ++block) {
    const Byte* const header = from;
    // The coded bytes come from another rank: each length is compared with what is left before it is used.
    if (size_t(end - from) < kHeader) return 0;
    from += kHeader;
    const Byte largest = read_once(header), escapes = read_once(header + 1),
               halves_below = kWide ? read_once(header + 2) : 0;
    const bool coded = escapes <= kMostEscapes, lower = halves_below == 1;
    const size_t bytes = coded ? kElements + kCodeBytes + escapes : kHalfBytes;
    if ((!coded && escapes != kAsTheyAre) || halves_below > 1) return 0;
    if (size_t(end - from) < bytes + (lower ? kHalfBytes : 0)) return 0;
    uint16_t halves[kElements];
    if (!coded) {
      __builtin_memcpy(halves, from, kHalfBytes);
    } else if (!unpack_halves(largest, escapes, from, halves)) {
      return 0;
    }
    from += bytes;
    if (!kWide) {
      __builtin_memcpy(values, halves, kHalfBytes);
    } else if (lower) {
      for (size_t i = 0; i < kElements; ++i) {
        store_unaligned<uint32_t>(values + 4 * i, uint32_t(halves[i]) << 16 | load_unaligned<uint16_t>(from + 2 * i));
      }
      from += kHalfBytes;
    } else {
      for (size_t i = 0; i < kElements; ++i) store_unaligned<uint32_t>(values + 4 * i, uint32_t(halves[i]) << 16);
    }
    values += (kWide ? 4 : 2) * kElements;
  }
  return size_t(from - begin);
}

}  // namespace

namespace RONDO_KERNEL_SET {

constexpr PackKernels kPackBfloat16 = {pack<false>, unpack<false>};
constexpr PackKernels kPackFloat32 = {pack<true>, unpack<true>};

}  // namespace RONDO_KERNEL_SET
}  // namespace rondo
