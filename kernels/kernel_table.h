#pragma once

#include <cstddef>
#include <cstdint>

#include "rondo/dtype.h"
#include "rondo/wire_format.h"

namespace rondo {

// What a loop does to its elements: an Op, resolved against the move's flags, so that no loop asks about them.
enum class Fold : uint8_t {
  kSum = 0,
  kProduct = 1,
  kMin = 2,
  kMax = 3,
  kBitAnd = 4,
  kBitOr = 5,
  kBitXor = 6,
  kLogicalAnd = 7,
  kLogicalOr = 8,
  kLogicalXor = 9,
  kScaledRoundedSum = 10,  // scaled sources times `scalar`, rounded to the dtype before they are folded
  kScaledSum = 11,         // scaled sources times 1/world, not rounded
  kDividedSum = 12,        // the sum divided by world
};

inline constexpr int kFolds = 13;

// Kernels work on whole blocks of every dtype: a few vectors of any instruction set. 128: four of AVX2, so that a
// loop's own instructions are spread over them.
inline constexpr size_t kBlockBytes = 128;

// The numbers that folds are made with.
struct FoldArguments {
  double scalar;   // kScaledRoundedSum
  uint32_t world;  // kScaledSum, kDividedSum
};

// One call of a kernel. Pointers need no alignment; a target may be exactly one of the sources.
struct KernelCall {
  const void* const* sources;
  void* const* targets;
  uint64_t scaled;  // kScaledRoundedSum, kScaledSum: bit i: sources[i] is scaled
  FoldArguments arguments;
  uint32_t source_count;
  uint32_t target_count;
  size_t blocks;
  size_t rest;  // elements behind the last block, fewer than a block
};

using Kernel = void (*)(const KernelCall& call);

// The loops for one pair of type and fold.
struct Kernels {
  Kernel blocks = nullptr;  // all blocks of a call
  Kernel rest = nullptr;    // its rest, element by element; nullptr where elements come in vectors (16-bit floats)
};

// The kernels of one dtype by Fold, called its row; empty where the pair is not defined.
struct KernelRow {
  Kernels folds[kFolds];
};

// One call of a wire format's kernels (wire_codec.h), on whole blocks. Pointers need no alignment.
struct WireEncodeCall {
  const void* values;
  void* coded;
  size_t blocks;
  // WireRounding's (wire_codec.h).
  bool stochastic;
  uint64_t seed;
  uint64_t first;
};
// Decoding needs no rounding: every code has one value.
struct WireDecodeCall {
  const void* coded;
  void* values;
  size_t blocks;
};
struct WireKernels {
  // The first block with an element that is not finite or too large; call.blocks if there is none.
  size_t (*encode)(const WireEncodeCall& call) = nullptr;
  void (*decode)(const WireDecodeCall& call) = nullptr;
};
struct WireRow {
  WireKernels formats[kWireFormats];
  WireKernels bfloat16_in_order;  // elements one after the other, as in memory
};

// One call of the format that loses nothing (pack.h), on whole blocks. Pointers need no alignment.
struct PackCall {
  const void* values;
  void* coded;
  size_t blocks;
};
struct UnpackCall {
  const void* coded;
  size_t bytes;  // that may be read
  void* values;
  size_t blocks;
};
struct PackKernels {
  size_t (*pack)(const PackCall& call);      // the bytes written
  size_t (*unpack)(const UnpackCall& call);  // the bytes read; 0: pack() writes none like them
};

// One call of the selection (select.h). Pointers need no alignment.
struct SelectCall {
  const void* input;     // count float32
  const void* residual;  // likewise; nullptr: none
  size_t count;
  uint32_t least;     // magnitude, as bits
  uint32_t first;     // number of the first element
  uint32_t* indices;  // room for count; ascending
  float* values;      // likewise
};
struct Selected {
  size_t count;
  uint32_t largest;  // magnitude of all elements, as bits
};

// All loops of one instruction set: rows by DType, wire formats, the selection, and what packs elements. Constant data,
// in a namespace of the set's own; which of them is used is decided at run time (machine.h).
struct KernelTable {
  const KernelRow* rows[kDTypes];
  const WireRow* wire;
  Selected (*select)(const SelectCall& call);
  const PackKernels *pack_bfloat16, *pack_float32;
};

// RONDO_KERNEL_SET of BUILD: the namespace of an instruction set's rows, so that all three are linked together.
namespace baseline {
extern const KernelTable kKernels;
}
namespace avx2 {
extern const KernelTable kKernels;
}
namespace avx512 {
extern const KernelTable kKernels;
}

}  // namespace rondo
