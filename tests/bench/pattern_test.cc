#include "bench/loop/pattern.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "bench/loop/contents.h"
#include "bench/loop/element.h"

namespace rondo::bench {
namespace {

Exercise float_sum(int world) {
  return {Benchmark::kAllReduce, Placement::kInPlace, DType::kFloat32, Op::kSum, world, 0};
}

TEST_CASE("a float32 sum starts from small integers times 2^-60") {
  const Tile tile = contribution(float_sum(4), 3);
  for (uint64_t i = 0; i < kTilePeriod; ++i) {
    const double integer = std::ldexp(load_value(DType::kFloat32, tile.data() + i * 4), 60);
    CHECK(integer >= 1);
    CHECK(integer <= 4);
    CHECK(integer == std::floor(integer));
  }
}

TEST_CASE("batches in worlds 2, 4 and 8 are 180 / log2(world) operations long and exact to the last") {
  for (const auto& [world, most] : {std::pair{2, 180u}, {4, 90u}, {8, 60u}}) {
    CHECK(max_operations(float_sum(world)) == most);
    CHECK(tolerance(float_sum(world), most) == 0);
  }
}

TEST_CASE("other worlds stay within a relative error of 1e-5") {
  for (int world : {3, 5, 6, 7, 12}) {
    const uint32_t most = max_operations(float_sum(world));
    CHECK(most > 5);
    CHECK(tolerance(float_sum(world), most) <= 1.02e-5);
    CHECK(tolerance(float_sum(world), most) > 0);
    CHECK(tolerance(float_sum(world), 1) == 0);  // one sum of small integers is exact in any world
  }
}

TEST_CASE("what a batch must end with: the first sum, times world for each further operation") {
  const Exercise e = float_sum(4);
  const Extent extent = extent_of(e.benchmark, 1024, e.dtype, e.world);
  const Tile expected = expected_output(e, extent, 2, 90).at(0).tile;
  for (uint64_t i = 0; i < kTilePeriod; ++i) {
    double sum = 0;
    for (int rank = 0; rank < 4; ++rank) sum += load_value(e.dtype, contribution(e, rank).data() + i * 4);
    CHECK(load_value(e.dtype, expected.data() + i * 4) == std::ldexp(sum, 2 * 89));
  }
}

TEST_CASE("messages: sendrecv ends with what the rank before contributes, a ping-pong and a burst with the partner's") {
  Exercise e = float_sum(4);
  e.placement = Placement::kOutOfPlace;
  for (int rank = 0; rank < 4; ++rank) {
    for (const auto& [benchmark, source] : {std::pair{Benchmark::kSendRecv, (rank + 3) % 4},
                                            {Benchmark::kPingPong, rank % 2 == 0 ? rank + 1 : rank - 1},
                                            {Benchmark::kBurst, rank % 2 == 0 ? rank + 1 : rank - 1}}) {
      e.benchmark = benchmark;
      const Extent extent = extent_of(benchmark, 1024, e.dtype, e.world);
      const std::vector<Region> expected = expected_output(e, extent, rank, 7);
      REQUIRE(expected.size() == 1);
      CHECK(expected[0].count == (benchmark == Benchmark::kBurst ? 64 * 256 : 256));
      CHECK(expected[0].tile == contribution(e, source));
    }
  }
  CHECK(max_operations(e) == kMaxBatch);
}

TEST_CASE("16-bit floats: a batch ends before the value leaves the type or the roundings add up") {
  Exercise e = float_sum(2);
  e.dtype = DType::kFloat16;
  CHECK(max_operations(e) == 26);
  CHECK(tolerance(e, 26) == 0);
  e.dtype = DType::kBfloat16;
  CHECK(max_operations(e) == 180);
  CHECK(tolerance(e, 180) == 0);
  e.world = 3;
  CHECK(max_operations(e) >= 1);
  CHECK(tolerance(e, max_operations(e)) <= 0.051);
}

TEST_CASE("sums of 8-bit floats are exact up to eight ranks") {
  for (const DType dtype : {DType::kFloat8E4M3, DType::kFloat8E5M2})
    for (int world = 1; world <= 8; ++world) {
      Exercise e = float_sum(world);
      e.dtype = dtype;
      CHECK(tolerance(e, 1) == 0);
      CHECK(tolerance(e, max_operations(e)) < 1);
    }
}

TEST_CASE("integer sums keep at least half of their bits") {
  Exercise e = float_sum(2);
  e.dtype = DType::kInt8;
  CHECK(max_operations(e) == 4);
  e.world = 8;
  CHECK(max_operations(e) == 1);
  e.world = 3;
  CHECK(max_operations(e) == kMaxBatch);
  e.dtype = DType::kInt64;
  e.world = 4;
  CHECK(max_operations(e) == 16);
}

TEST_CASE("xor of an even number of equal values is 0: one operation a batch") {
  Exercise e = float_sum(2);
  e.dtype = DType::kInt32;
  e.op = Op::kBitXor;
  CHECK(max_operations(e) == 1);
  e.world = 3;
  CHECK(max_operations(e) == kMaxBatch);
}

TEST_CASE("no two ranks contribute the same, so a missing or doubled rank changes the sum") {
  for (int world : {2, 4, 8}) {
    for (int a = 0; a < world; ++a) {
      for (int b = a + 1; b < world; ++b) CHECK(contribution(float_sum(world), a) != contribution(float_sum(world), b));
    }
  }
}

TEST_CASE("regions: written from any phase, compared element by element, one wrong element is one") {
  const Exercise e = float_sum(2);
  const Region region{7, 10'000, 250, contribution(e, 1)};
  std::vector<std::byte> memory((7 + 10'000 + 3) * 4);
  write_region(memory.data(), e.dtype, region);
  CHECK(count_wrong(memory.data(), e.dtype, region, 0) == 0);
  CHECK(std::memcmp(memory.data() + 7 * 4, region.tile.data() + 250 * 4, 4) == 0);
  CHECK(std::memcmp(memory.data() + 8 * 4, region.tile.data(), 4) == 0);
  memory[(7 + 5000) * 4 + 1] ^= std::byte{0x40};
  CHECK(count_wrong(memory.data(), e.dtype, region, 0) == 1);
  memory[(7 + 9999) * 4 + 1] ^= std::byte{0x40};
  CHECK(count_wrong(memory.data(), e.dtype, region, 0) == 2);
}

TEST_CASE("the tolerance is relative, and a NaN is never close") {
  Region region{0, 1, 0, Tile(kTilePeriod * 4)};
  store_value(DType::kFloat32, region.tile.data(), 1000.0);
  std::vector<std::byte> memory(4);
  store_value(DType::kFloat32, memory.data(), 1000.5);
  CHECK(count_wrong(memory.data(), DType::kFloat32, region, 1e-3) == 0);
  CHECK(count_wrong(memory.data(), DType::kFloat32, region, 1e-4) == 1);
  CHECK(count_wrong(memory.data(), DType::kFloat32, region, 0) == 1);
  const float nan = NAN;
  std::memcpy(memory.data(), &nan, sizeof nan);
  CHECK(count_wrong(memory.data(), DType::kFloat32, region, 1.0) == 1);
}

}  // namespace
}  // namespace rondo::bench
