#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/combine.h"
#include "rondo/wire_format.h"

namespace rondo {

// float32 elements as they travel. They are coded in blocks of 128; the last one is filled up with zeros.
//   float16, bfloat16         256 bytes, little-endian
//   float8_e4m3, float8_e5m2  a scale of 4 bytes (float32), 128 bytes: element / scale
//   int8                      a scale, 128 bytes: round(element / scale)
//   int4                      a scale, 64 bytes: byte i has elements i (low half) and 64 + i, each plus 8
// bfloat16 and float8 take each 16 elements in the order 0, 8, 1, 9, ... 7, 15. The scale is the largest magnitude of
// the block divided by the largest one of the format; NaN if an element of the block is not finite, and then all of the
// block is decoded as NaN. A block whose largest magnitude is below 2^-100 is coded as zeros.
inline constexpr size_t kWireBlock = 128;

inline constexpr uint16_t kWireBlockBytes[kWireFormats] = {512, 256, 256, 132, 132, 132, 68, 0};  // packed: pack.h
constexpr size_t wire_block_bytes(WireFormat format) { return kWireBlockBytes[static_cast<size_t>(format)]; }
constexpr size_t wire_blocks(uint64_t count) { return (count + kWireBlock - 1) / kWireBlock; }
constexpr size_t wire_bytes(WireFormat format, uint64_t count) { return wire_blocks(count) * wire_block_bytes(format); }

// How elements are rounded: to nearest, ties to even; or at random.
struct WireRounding {
  bool stochastic = false;
  uint64_t seed = 0;
  uint64_t first = 0;  // number of the first element: blocks of the same seed and number are rounded alike
};

// Codes count elements of float32 at `values` into wire_bytes() at `to`. Returns the first element that is not finite
// or, in a format of 16 bits, too large for it; count if there is none. Nothing needs alignment; no overlap. Not kNone.
// Never throws, allocates or blocks; any thread. All instruction sets give the same bits;
// it must be available.
uint64_t wire_encode(WireFormat format, const void* values, uint64_t count, void* to, const WireRounding& rounding,
                     InstructionSet set = active_instruction_set());
// The other way: count elements of float32 to `values`.
void wire_decode(WireFormat format, const void* from, uint64_t count, void* values,
                 InstructionSet set = active_instruction_set());

// Elements of float16 or bfloat16 as they lie in memory, and float32. narrow() rounds to nearest, ties to even, and
// returns the first element that is not finite or too large for `type`; count if there is none. No overlap.
uint64_t narrow(DType type, const float* values, uint64_t count, void* to,
                InstructionSet set = active_instruction_set());
void widen(DType type, const void* from, uint64_t count, float* values, InstructionSet set = active_instruction_set());

}  // namespace rondo
