#include "kernels/combine.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "kernels/kernel_table.h"
#include "kernels/machine.h"
#include "kernels/resolve.h"
#include "ring/base/check.h"

namespace rondo {

namespace {

// Bytes copied from one source to all targets before the next: the source is read from memory once.
constexpr size_t kCopyBlockBytes = 32 * 1024;

// A move that changes nothing. A target may be the source, which is then left alone.
void copy(const CombineMove& move, size_t bytes) {
  const auto* source = static_cast<const unsigned char*>(move.sources[0]);
  for (size_t at = 0; at < bytes; at += kCopyBlockBytes) {
    const size_t block = bytes - at < kCopyBlockBytes ? bytes - at : kCopyBlockBytes;
    for (int target = 0; target < move.target_count; ++target) {
      auto* to = static_cast<unsigned char*>(move.targets[target]);
      if (to != source) std::memcpy(to + at, source + at, block);
    }
  }
}

// Less than a block. A call to memcpy costs as much as all of it, and small collectives are nothing but this.
void copy_rest(unsigned char* to, const unsigned char* from, size_t bytes) {
  size_t at = 0;
  for (; at + 8 <= bytes; at += 8) std::memcpy(to + at, from + at, 8);
  if (at + 4 <= bytes) {
    std::memcpy(to + at, from + at, 4);
    at += 4;
  }
  for (; at < bytes; ++at) to[at] = from[at];
}

// What is left after the last whole block, where elements come in vectors: less than a block of each buffer, folded in
// blocks of its own.
void combine_rest(Kernel kernel, KernelCall call, size_t offset, size_t bytes) {
  alignas(64) unsigned char blocks[kMaxCombineSources][kBlockBytes];
  const void* sources[kMaxCombineSources];
  void* target = blocks[0];
  for (uint32_t i = 0; i < call.source_count; ++i) {
    std::memset(blocks[i], 0, kBlockBytes);
    copy_rest(blocks[i], static_cast<const unsigned char*>(call.sources[i]) + offset, bytes);
    sources[i] = blocks[i];
  }
  void* const* targets = call.targets;
  const uint32_t target_count = call.target_count;
  call.sources = sources;
  call.targets = &target;
  call.target_count = 1;
  call.blocks = 1;
  call.rest = 0;
  call_in_default_float_mode(kernel, call);
  for (uint32_t i = 0; i < target_count; ++i)
    copy_rest(static_cast<unsigned char*>(targets[i]) + offset, blocks[0], bytes);
}

// What is folded at a time by a function: both blocks stay in a first-level cache, and a call of it costs little beside
// them.
constexpr size_t kUserBlockBytes = 8 * 1024;
static_assert(kUserBlockBytes >= kMostUserBytes);

// From the last source to the first, so that the function's inout is the only copy. Its operands are aligned memory:
// sources may lie anywhere, and a target may be any of them. Several ranks may fold the same block, whatever their
// threads have set.
void combine_by_function(const UserOp& op, const CombineMove& move, size_t count) {
  const DefaultFloatMode mode;
  alignas(64) unsigned char value[kUserBlockBytes], aligned[kUserBlockBytes];
  const size_t element = op.element_bytes, most = kUserBlockBytes / element;
  // The largest power of two that divides the element's size: what a function may expect of its operands.
  const size_t alignment = std::min<size_t>(16, element & (~element + 1));
  for (size_t at = 0; at < count; at += most) {
    const size_t now = std::min(most, count - at), bytes = now * element;
    const auto source = [&](int i) { return static_cast<const unsigned char*>(move.sources[i]) + at * element; };
    std::memcpy(value, source(move.source_count - 1), bytes);
    for (int i = move.source_count - 2; i >= 0; --i) {
      const unsigned char* in = source(i);
      if (reinterpret_cast<uintptr_t>(in) % alignment != 0) {
        std::memcpy(aligned, in, bytes);
        in = aligned;
      }
      op.function(in, value, now, op.context);
    }
    for (int i = 0; i < move.target_count; ++i) {
      std::memcpy(static_cast<unsigned char*>(move.targets[i]) + at * element, value, bytes);
    }
  }
}

// Whole blocks by the vector loops, the rest element by element. The checks are of our own callers: users' arguments
// were checked when the call was made.
void combine_by(const KernelTable& table, const CombineSpec& spec, const CombineMove& move, size_t count) {
  if (count == 0) return;
  RONDO_CHECK(move.source_count >= 1 && move.source_count <= kMaxCombineSources, "combine() needs 1 to 64 sources");
  RONDO_CHECK(move.target_count >= 1 && move.target_count <= kMaxCombineTargets, "combine() needs 1 to 64 targets");
  if (spec.op == Op::kUser) return combine_by_function(*spec.user, move, count);
  RONDO_CHECK(op_supports(spec.op, spec.dtype), "combine() of a pair that op_supports() refuses");
  const size_t bytes = count * dtype_bytes(spec.dtype);
  const ResolvedMove resolved = resolve(spec, move);
  if (resolved.copies) return copy(move, bytes);
  const Kernels& kernels = table.rows[static_cast<int>(spec.dtype)]->folds[static_cast<int>(resolved.fold)];
  RONDO_CHECK(kernels.blocks != nullptr, "no kernel for a pair that op_supports() allows");
  const KernelCall call = {.sources = move.sources,
                           .targets = move.targets,
                           .scaled = resolved.scaled,
                           .arguments = {spec.scalar, spec.world},
                           .source_count = move.source_count,
                           .target_count = move.target_count,
                           .blocks = bytes / kBlockBytes,
                           .rest = bytes % kBlockBytes / dtype_bytes(spec.dtype)};
  if (call.blocks > 0) call_in_default_float_mode(kernels.blocks, call);
  if (call.rest == 0) return;
  if (kernels.rest != nullptr) return call_in_default_float_mode(kernels.rest, call);
  combine_rest(kernels.blocks, call, call.blocks * kBlockBytes, bytes % kBlockBytes);
}

InstructionSet best_instruction_set() {
  for (InstructionSet set : {InstructionSet::kAvx512, InstructionSet::kAvx2})
    if (kernel_table(set) != nullptr) return set;
  return InstructionSet::kBaseline;
}

}  // namespace

const char* instruction_set_name(InstructionSet set) {
  switch (set) {
    case InstructionSet::kBaseline:
      return "baseline";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kAvx512:
      return "avx512";
  }
  return "instruction set?";
}

bool instruction_set_available(InstructionSet set) { return kernel_table(set) != nullptr; }

// Found once: the first call asks the processor, the others load a constant.
InstructionSet active_instruction_set() {
  static const InstructionSet best = best_instruction_set();
  return best;
}

void combine(const CombineSpec& spec, const CombineMove& move, size_t count) {
  static const KernelTable& table = *kernel_table(active_instruction_set());
  combine_by(table, spec, move, count);
}

void combine_with(InstructionSet set, const CombineSpec& spec, const CombineMove& move, size_t count) {
  combine_by(available_kernel_table(set), spec, move, count);
}

}  // namespace rondo
