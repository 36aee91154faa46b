#pragma once

#include <cstddef>
#include <cstdint>

#include "rondo/dtype.h"
#include "rondo/op.h"

namespace rondo {

inline constexpr int kMaxCombineSources = 64;
inline constexpr int kMaxCombineTargets = 64;

// What is done to the elements, the same for every slice of an operation.
struct CombineSpec {
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;
  // Op::kPremulSum: this rank's factor. Ignored otherwise.
  double scalar = 1.0;
  // Op::kAverage: the divisor N, >= 1. Ignored otherwise.
  uint32_t world = 1;
  // Op::kUser: what folds elements of user->element_bytes; dtype is ignored then.
  const UserOp* user = nullptr;
};

// One move: value = sources[0] op sources[1] op ... (folded left to right in the accumulator type), written to every
// target.
//   scaled   bit i set: sources[i] is a raw contribution loaded for the first time. Then
//              kPremulSum: multiplied by `scalar` in the accumulator type and rounded to the dtype before it is folded;
//              kAverage of float16 and float8: multiplied by 1/world in float32 (so that the sum cannot overflow), not
//              rounded; every other case: no effect.
//   finish   the result is complete: kAverage of other floats multiplies once by 1/world in the accumulator type;
//            kAverage of integers divides by world and truncates to zero; every other case: no effect.
// One source without an effective scale or finish is a copy, bit for bit (NaN payloads stay).
// count is elements; pointers need no alignment; a target may be exactly one of the sources, no other overlap.
// count 0 does nothing. Never throws, allocates or blocks; any thread.
struct CombineMove {
  const void* const* sources = nullptr;
  void* const* targets = nullptr;
  uint64_t scaled = 0;
  uint8_t source_count = 0;  // 1 .. kMaxCombineSources
  uint8_t target_count = 0;  // 1 .. kMaxCombineTargets
  bool finish = false;
};

void combine(const CombineSpec& spec, const CombineMove& move, size_t count);

// True if a source flagged `scaled` is changed by it, or `finish` changes the value: then a move of one source is not a
// copy.
bool combine_scales(const CombineSpec& spec);
bool combine_finishes(const CombineSpec& spec);

// Instruction sets that combine() can use. The best one the processor has is picked at first use; every one gives the
// same bits, so ranks on different machines need not agree on one.
enum class InstructionSet : uint8_t { kBaseline = 0, kAvx2 = 1, kAvx512 = 2 };
const char* instruction_set_name(InstructionSet set);
bool instruction_set_available(InstructionSet set);
InstructionSet active_instruction_set();
// For tests and measurements: the same as combine(), with the instruction set given (it must be available).
void combine_with(InstructionSet set, const CombineSpec& spec, const CombineMove& move, size_t count);

}  // namespace rondo
