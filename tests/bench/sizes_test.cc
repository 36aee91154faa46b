#include "bench/loop/sizes.h"

#include <doctest/doctest.h>

#include <numeric>

#include "bench/loop/benchmark.h"
#include "bench/loop/tensors.h"

namespace rondo::bench {
namespace {

TEST_CASE("sizes: plain bytes, K, M and G of 1024, fractions that are whole bytes, nothing else") {
  CHECK(parse_size("8") == 8);
  CHECK(parse_size("0") == 0);
  CHECK(parse_size("64K") == 65536);
  CHECK(parse_size("1m") == 1 << 20);
  CHECK(parse_size("2GiB") == uint64_t{2} << 30);
  CHECK(parse_size("1.5K") == 1536);
  CHECK(parse_size("4kb") == 4096);
  CHECK(parse_size("16B") == 16);
  for (const char* bad : {"", "K", "-8", "8X", "8 K", "0.3", "1e3", "nan", "inf", "99999999999G", "8K8", "0x10"}) {
    INFO(bad);
    CHECK_FALSE(parse_size(bad).has_value());
  }
}

TEST_CASE("a list of sizes keeps its order; an empty or bad element spoils it") {
  CHECK(parse_size_list("1M,8,64K") == std::vector<uint64_t>{1 << 20, 8, 65536});
  CHECK_FALSE(parse_size_list("").has_value());
  CHECK_FALSE(parse_size_list("8,").has_value());
  CHECK_FALSE(parse_size_list("8,,16").has_value());
}

TEST_CASE("ranges: by factor or by step, both ends included") {
  CHECK(size_range(8, 128, 4, 0) == std::vector<uint64_t>{8, 32, 128});
  CHECK(size_range(8, 127, 4, 0) == std::vector<uint64_t>{8, 32});
  CHECK(size_range(10, 30, 2, 10) == std::vector<uint64_t>{10, 20, 30});
  CHECK(size_range(8, 8, 2, 0) == std::vector<uint64_t>{8});
  CHECK(size_range(8, 64, uint64_t{1} << 61, 0) == std::vector<uint64_t>{8});
  CHECK(size_range(1, kMaxSizeBytes, 2, 1).size() == kMaxSizes);
}

TEST_CASE("sizes are printed in the largest unit") {
  CHECK(size_text(8) == "8 B");
  CHECK(size_text(1536) == "1.5 KiB");
  CHECK(size_text(uint64_t{64} << 20) == "64 MiB");
}

TEST_CASE("extents: the size is the larger buffer, counts are whole and never 0") {
  CHECK(extent_of(Benchmark::kAllReduce, 1024, DType::kFloat32, 4) == Extent{1024, 256, 256, 256});
  CHECK(extent_of(Benchmark::kAllReduce, 1023, DType::kFloat32, 4) == Extent{1020, 255, 255, 255});
  CHECK(extent_of(Benchmark::kAllGather, 1024, DType::kFloat32, 4) == Extent{1024, 64, 64, 256});
  CHECK(extent_of(Benchmark::kReduceScatter, 1024, DType::kFloat64, 4) == Extent{1024, 32, 128, 32});
  CHECK(extent_of(Benchmark::kAllToAll, 8, DType::kFloat32, 4) == Extent{16, 1, 4, 4});
  CHECK(extent_of(Benchmark::kPingPong, 1023, DType::kFloat32, 4) == Extent{1020, 255, 255, 255});
  CHECK(extent_of(Benchmark::kBurst, 1023, DType::kFloat32, 4) == Extent{1020, 255, 64 * 255, 64 * 255});
  CHECK(extent_of(Benchmark::kBarrier, 1024, DType::kFloat32, 4) == Extent{});
}

TEST_CASE("bus factors are those of nccl-tests") {
  CHECK(bus_factor(Benchmark::kAllReduce, 2) == 1.0);
  CHECK(bus_factor(Benchmark::kAllReduce, 4) == 1.5);
  CHECK(bus_factor(Benchmark::kReduceScatter, 4) == 0.75);
  CHECK(bus_factor(Benchmark::kAllGather, 4) == 0.75);
  CHECK(bus_factor(Benchmark::kAllToAll, 4) == 0.75);
  CHECK(bus_factor(Benchmark::kBroadcast, 4) == 1.0);
  CHECK(bus_factor(Benchmark::kReduce, 4) == 1.0);
  CHECK(bus_factor(Benchmark::kSendRecv, 4) == 1.0);
  CHECK(bus_factor(Benchmark::kPingPong, 4) == 1.0);
  CHECK(bus_factor(Benchmark::kAllReduce, 1) == 0.0);
}

TEST_CASE("a ping-pong is between the two ranks of a pair, out of place, and has two messages in turn") {
  for (int world = 1; world <= 5; ++world) {
    CHECK(benchmark_fits(Benchmark::kPingPong, world) == (world % 2 == 0));
    CHECK(benchmark_fits(Benchmark::kBurst, world) == (world % 2 == 0));
    CHECK(benchmark_fits(Benchmark::kSendRecv, world) == (world > 1));
    CHECK(benchmark_fits(Benchmark::kAllReduce, world));
  }
  for (int rank = 0; rank < 6; ++rank) {
    CHECK(partner_of(partner_of(rank)) == rank);
    CHECK(sends_first(rank) != sends_first(partner_of(rank)));
  }
  CHECK(partner_of(2) == 3);
  CHECK(sends_first(2));
  CHECK(benchmark_messages(Benchmark::kPingPong) == 2);
  CHECK(benchmark_messages(Benchmark::kBurst) == 64);
  CHECK(benchmark_messages(Benchmark::kSendRecv) == 1);
  CHECK(benchmark_has(Benchmark::kPingPong, Placement::kOutOfPlace));
  CHECK_FALSE(benchmark_has(Benchmark::kPingPong, Placement::kInPlace));
  CHECK_FALSE(benchmark_collective(Benchmark::kPingPong).has_value());
  CHECK_FALSE(benchmark_loads_ring_evenly(Benchmark::kPingPong));  // one of two sends at a time
}

TEST_CASE("names go both ways, and those of nccl-tests are understood") {
  for (int i = 0; i < kBenchmarks; ++i) {
    CHECK(benchmark_by_name(benchmark_name(static_cast<Benchmark>(i))) == static_cast<Benchmark>(i));
  }
  CHECK(dtype_by_name("half") == DType::kFloat16);
  CHECK(dtype_by_name("float") == DType::kFloat32);
  CHECK(dtype_by_name("double") == DType::kFloat64);
  CHECK(dtype_by_name("bfloat16") == DType::kBfloat16);
  CHECK(op_by_name("prod") == Op::kProduct);
  CHECK(op_by_name("avg") == Op::kAverage);
  CHECK(op_by_name("mulsum") == Op::kPremulSum);
  CHECK_FALSE(dtype_by_name("float8").has_value());
  CHECK_FALSE(op_by_name("").has_value());
}

TEST_CASE("models: the published numbers of parameters, in as many tensors") {
  const auto sum = [](const std::vector<uint64_t>& tensors) {
    return std::accumulate(tensors.begin(), tensors.end(), uint64_t{0});
  };
  CHECK(resnet50_tensors().size() == 161);
  CHECK(sum(resnet50_tensors()) == 25'557'032);
  CHECK(resnet50_tensors().front() == 1000);  // the classifier's bias: its gradient is ready first
  CHECK(gpt2_tensors().size() == 148);
  CHECK(sum(gpt2_tensors()) == 124'439'808);
  CHECK(gpt2_tensors().back() == 50'257 * 768);
  CHECK_FALSE(tensors_by_name("vgg").has_value());
}

}  // namespace
}  // namespace rondo::bench
