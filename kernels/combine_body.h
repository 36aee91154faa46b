// The loops of combine(), compiled once an instruction set and dtype (rows/). See element.h on namespaces.
#pragma once

#include "kernels/element.h"
#include "kernels/fold.h"
#include "kernels/kernel_table.h"

namespace rondo {
namespace {

// Bytes of accumulators of a tile, for more sources than one pass takes. A tile and a page of each of a pass's four
// sources fit the level 1 cache (32 KiB or more everywhere).
constexpr size_t kTileBytes = 4096;

// A pass folds sources [first, first + N) of the blocks [begin, end).
//   kWhole   these are all sources: to the first M targets
//   kFirst   the first sources: into the tile
//   kMiddle  after the tile, into the tile
//   kLast    after the tile, to the first M targets
enum class Part { kWhole, kFirst, kMiddle, kLast };

template <class K>
RONDO_INLINE auto scale_of(const KernelCall& call, uint32_t source) {
  return K::scale(K::factor(call.arguments), (call.scaled >> source) & 1);
}
template <class K, class Scale>
RONDO_INLINE auto load(const Byte* from, Scale scale) {
  return K::enter(K::Format::load(from), scale);
}
template <class K, class Constant>
RONDO_INLINE void store(Byte* to, typename K::Accumulator value, Constant constant) {
  K::Format::store(to, K::leave(value, constant));
}

template <class K>
struct Pass {
  const KernelCall& call;
  typename K::Accumulator* tile;
  uint32_t first;
  size_t begin;
  size_t end;
  RONDO_INLINE const Byte* source(uint32_t index) const {
    return static_cast<const Byte*>(call.sources[first + index]) + begin * kBlockBytes;
  }
  RONDO_INLINE Byte* target(uint32_t index) const {
    return static_cast<Byte*>(call.targets[index]) + begin * kBlockBytes;
  }
  RONDO_INLINE auto scale(uint32_t index) const { return scale_of<K>(call, first + index); }
};

// One pass over the blocks: N sources, at most four, so that their pointers, scales and accumulators stay in registers.
// Part, N and M are template arguments, so the inner loop has no branch. It is whole vectors whatever the instruction
// set, and is unrolled: what is left of a buffer after the last block is not for the kernels.
//
// Bit-exact on every set: an element's operations and their order are the same in a vector of any width, each is
// rounded by itself (-ffp-contract=off), and no result depends on its neighbors.
template <class K, Part kPart, int N, int M>
__attribute__((noinline)) void fold_pass(const Pass<K>& pass) {
  using Format = typename K::Format;
  constexpr size_t kSteps = kBlockBytes / Format::kBytes / Format::kWidth;  // accumulators a block
  constexpr size_t kStepBytes = Format::kBytes * Format::kWidth;
  const auto constant = K::constant(pass.call.arguments);
  const auto scale0 = pass.scale(0);
  const auto scale1 = pass.scale(N > 1 ? 1 : 0);
  const auto scale2 = pass.scale(N > 2 ? 2 : 0);
  const auto scale3 = pass.scale(N > 3 ? 3 : 0);
  const Byte* source0 = pass.source(0);
  const Byte* source1 = pass.source(N > 1 ? 1 : 0);
  const Byte* source2 = pass.source(N > 2 ? 2 : 0);
  const Byte* source3 = pass.source(N > 3 ? 3 : 0);
  Byte* target0 = pass.target(0);
  Byte* target1 = pass.target(M > 1 ? 1 : 0);
  typename K::Accumulator* tile = pass.tile;
  const size_t bytes = (pass.end - pass.begin) * kBlockBytes;
  for (size_t block = 0; block < bytes; block += kBlockBytes) {
    RONDO_VECTOR_LOOP
    for (size_t step = 0; step < kSteps; ++step) {
      const size_t at = block + step * kStepBytes;
      auto value = load<K>(source0 + at, scale0);
      if constexpr (kPart == Part::kMiddle || kPart == Part::kLast) value = K::fold(tile[step], value);
      if constexpr (N > 1) value = K::fold(value, load<K>(source1 + at, scale1));
      if constexpr (N > 2) value = K::fold(value, load<K>(source2 + at, scale2));
      if constexpr (N > 3) value = K::fold(value, load<K>(source3 + at, scale3));
      if constexpr (kPart == Part::kFirst || kPart == Part::kMiddle) {
        tile[step] = value;
      } else {
        store<K>(target0 + at, value, constant);
        if constexpr (M > 1) store<K>(target1 + at, value, constant);
      }
    }
    if constexpr (kPart != Part::kWhole) tile += kSteps;
  }
}

// The last one to four sources, which may be all of them.
template <class K, Part kPart>
void fold_few(const Pass<K>& pass) {
  switch (pass.call.source_count - pass.first) {
    // A fold of one source exists only where it scales or finishes; otherwise the move is a copy (resolve.h).
    case 1:
      if constexpr (kPart == Part::kLast || K::kTakesOneSource) fold_pass<K, kPart, 1, 1>(pass);
      return;
    case 2:
      return fold_pass<K, kPart, 2, 1>(pass);
    case 3:
      return fold_pass<K, kPart, 3, 1>(pass);
    default:
      return fold_pass<K, kPart, 4, 1>(pass);
  }
}

// Five sources or more: tile by tile, four sources a pass. The tile holds accumulators, so nothing is rounded to the
// dtype between two passes, and the result is that of one pass over all sources.
template <class K>
void fold_by_tiles(const KernelCall& call, size_t begin, size_t end) {
  using Accumulator = typename K::Accumulator;
  constexpr size_t kAccumulators = kTileBytes / sizeof(Accumulator);
  constexpr size_t kTileBlocks = kAccumulators * K::Format::kWidth * K::Format::kBytes / kBlockBytes;
  Accumulator tile[kAccumulators];
  for (size_t at = begin; at < end; at += kTileBlocks) {
    const size_t stop = end - at < kTileBlocks ? end : at + kTileBlocks;
    fold_pass<K, Part::kFirst, 4, 1>({call, tile, 0, at, stop});
    uint32_t first = 4;
    for (; first + 4 < call.source_count; first += 4) fold_pass<K, Part::kMiddle, 4, 1>({call, tile, first, at, stop});
    fold_few<K, Part::kLast>({call, tile, first, at, stop});
  }
}

// All sources of the blocks [begin, end) to target 0.
template <class K>
void fold_sources(const KernelCall& call, size_t begin, size_t end) {
  if (call.source_count > 4) return fold_by_tiles<K>(call, begin, end);
  fold_few<K, Part::kWhole>({call, nullptr, 0, begin, end});
}

// Page by page, so that target 0 is copied while it is in the cache. All sources of a page are read before any target
// of it is written, so each target may be a source.
template <class K>
void run(const KernelCall& call) {
  if (call.target_count == 1) return fold_sources<K>(call, 0, call.blocks);
  if (call.source_count == 2 && call.target_count == 2)
    return fold_pass<K, Part::kWhole, 2, 2>({call, nullptr, 0, 0, call.blocks});
  constexpr size_t kPageBlocks = 4096 / kBlockBytes;
  for (size_t at = 0; at < call.blocks; at += kPageBlocks) {
    const size_t stop = call.blocks - at < kPageBlocks ? call.blocks : at + kPageBlocks;
    fold_sources<K>(call, at, stop);
    const Byte* folded = static_cast<const Byte*>(call.targets[0]) + at * kBlockBytes;
    for (uint32_t target = 1; target < call.target_count; ++target)
      __builtin_memcpy(static_cast<Byte*>(call.targets[target]) + at * kBlockBytes, folded, (stop - at) * kBlockBytes);
  }
}

// What is left after the last block, element by element: small collectives are nothing but this. Cost: 1 to 2 ns an
// element; a block of its own, filled up with zeros, took 60 to 100 ns.
template <class K>
void run_rest(const KernelCall& call) {
  using Format = typename K::Format;
  const auto constant = K::constant(call.arguments);
  const auto factor = K::factor(call.arguments);
  const auto scale = [&](uint32_t source) { return K::scale(factor, (call.scaled >> source) & 1); };
  const size_t begin = call.blocks * kBlockBytes, end = begin + call.rest * Format::kBytes;
  for (size_t at = begin; at < end; at += Format::kBytes) {
    auto value = load<K>(static_cast<const Byte*>(call.sources[0]) + at, scale(0));
    for (uint32_t source = 1; source < call.source_count; ++source) {
      value = K::fold(value, load<K>(static_cast<const Byte*>(call.sources[source]) + at, scale(source)));
    }
    for (uint32_t target = 0; target < call.target_count; ++target) {
      store<K>(static_cast<Byte*>(call.targets[target]) + at, value, constant);
    }
  }
}

// What rows/row.h makes of a fold on this processor.
struct Loops {
  using Row = KernelRow;
  template <class K>
  static constexpr Kernels of() {
    if constexpr (K::Format::kWidth == 1) {
      return {run<K>, run_rest<K>};
    } else {
      return {run<K>, nullptr};
    }
  }
};

}  // namespace
}  // namespace rondo
