#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/combine.h"

namespace rondo {

// bfloat16 and float32 elements as they travel in the format that loses nothing. In blocks of 256:
//   u8 e        the largest exponent, as it is stored
//   u8 n        exponents that escape, 0 .. 159; 255: the elements' upper halves follow as they are
//   u8 lower    float32 alone. 1: the elements' lower halves follow last; 0: they are all zero
//   256 bytes   sign (bit 7) and upper 7 bits of the fraction
//   64 bytes    lower two bits of the codes; a code is e less the exponent, or 7 where that is 7 or more.
//               Byte i has those of the elements i, 64 + i, 128 + i, 192 + i, from bit 0 on
//   32 bytes    third bit of the codes. Byte i has those of the elements i, 32 + i, ... 224 + i
//   n bytes     exponents of the elements whose code is 7, by groups of 64; in a group 0, 8, ... 56, 1, 9, ... 63
//   512 bytes   where `lower` is 1: the lower halves
// Elements behind the last whole block follow as they are. All little-endian.
inline constexpr size_t kPackedBlock = 256;

constexpr size_t packed_header_bytes(size_t element_bytes) { return element_bytes == 4 ? 3 : 2; }
// The most that `count` elements become.
constexpr size_t packed_bytes(size_t element_bytes, uint64_t count) {
  return count * element_bytes + count / kPackedBlock * packed_header_bytes(element_bytes);
}

// Codes count elements into packed_bytes() at `to`, and returns how many bytes they became. dtype: kBfloat16 or
// kFloat32. Nothing needs alignment; no overlap. Never throws, allocates or blocks; any thread. All instruction sets
// give the same bytes; it must be available.
size_t pack(DType dtype, const void* values, uint64_t count, void* to, InstructionSet set = active_instruction_set());
// The other way. False: `bytes` bytes are no count elements. Then some of the values are written; nothing else ever is.
bool unpack(DType dtype, const void* from, size_t bytes, uint64_t count, void* values,
            InstructionSet set = active_instruction_set());

}  // namespace rondo
