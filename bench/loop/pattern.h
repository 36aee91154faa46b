#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/loop/benchmark.h"
#include "rondo/dtype.h"
#include "rondo/op.h"

namespace rondo::bench {

// What the buffers of a timed batch hold before and must hold after. Contents repeat with a period that is no multiple
// of any block size, so a block that lands in the wrong place shows; a tile is one period of elements.
inline constexpr uint64_t kTilePeriod = 251;
using Tile = std::vector<std::byte>;  // kTilePeriod elements

// Op::kPremulSum: the factor of every rank; a power of two keeps sums exact.
inline constexpr double kPremulScalar = 0.5;

// The largest batch, whatever the arithmetic allows.
inline constexpr uint32_t kMaxBatch = 256;

struct Exercise {
  Benchmark benchmark = Benchmark::kAllReduce;
  Placement placement = Placement::kInPlace;
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;
  int world = 1;
  int root = 0;  // where the benchmark has one
  // An operation is one call for each of these many elements in turn, from the buffers' beginning on; their sum is the
  // extent's count. Empty: one call for all. All-reduce only.
  std::vector<uint64_t> parts = {};
};

// `count` elements from `offset` of a buffer: element i holds tile element (phase + i) modulo kTilePeriod.
struct Region {
  uint64_t offset = 0;
  uint64_t count = 0;
  uint64_t phase = 0;
  Tile tile;
};

// What one rank contributes: small positive integers (floats: times 2^-60, float16 2^-14) that differ by rank and
// place; for products powers of two or odd numbers, for bitwise operations all bits, for logical ones 0 and 1.
Tile contribution(const Exercise& exercise, int rank);

// What rank `rank`'s output holds after `operations` operations on the same buffers. An all_reduce works on its own
// last result (out of place: the two buffers change roles), so a lost operation shows; in place, reduce and
// reduce_scatter do so for the block that they overwrite; everything else gives the same result each time.
// `extent`: of extent_of(). Empty where this rank gets no output.
std::vector<Region> expected_output(const Exercise& exercise, const Extent& extent, int rank, uint32_t operations);

// The most operations of one batch after which the result still proves something: every partial sum, folded in any
// order, is exactly representable, or the rounding errors stay within a tolerance (1e-5 for float32, 1e-12 float64,
// 1e-2 float16, 5e-2 bfloat16, 0.25 float8); integer results have not shifted out of the type; and at most 180 /
// log2(world) operations for a float32 sum, whose magnitude grows by `world` each time.
uint32_t max_operations(const Exercise& exercise);

// Largest relative error that `operations` operations may show: 0 where every result is exact.
double tolerance(const Exercise& exercise, uint32_t operations);

}  // namespace rondo::bench
