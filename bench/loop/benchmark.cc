#include "bench/loop/benchmark.h"

#include <algorithm>

namespace rondo::bench {
namespace {

// Benchmarks whose larger buffer holds one block for each rank.
bool is_blocked(Benchmark b) {
  return b == Benchmark::kReduceScatter || b == Benchmark::kAllGather || b == Benchmark::kGather ||
         b == Benchmark::kScatter || b == Benchmark::kAllToAll;
}

template <typename Value>
std::optional<Value> find_name(std::string_view name, int values, const char* (*name_of)(Value)) {
  for (int i = 0; i < values; ++i) {
    if (name == name_of(static_cast<Value>(i))) return static_cast<Value>(i);
  }
  return std::nullopt;
}

}  // namespace

const char* benchmark_name(Benchmark benchmark) {
  const std::optional<Collective> collective = benchmark_collective(benchmark);
  if (collective) return collective_name(*collective);
  if (benchmark == Benchmark::kSendRecv) return "sendrecv";
  return benchmark == Benchmark::kPingPong ? "pingpong" : "burst";
}

std::optional<Benchmark> benchmark_by_name(std::string_view name) {
  return find_name<Benchmark>(name, kBenchmarks, benchmark_name);
}

static_assert(static_cast<int>(Benchmark::kBarrier) == static_cast<int>(Collective::kBarrier));
std::optional<Collective> benchmark_collective(Benchmark benchmark) {
  if (benchmark > Benchmark::kBarrier) return std::nullopt;  // scans have no benchmark
  return static_cast<Collective>(benchmark);
}

bool benchmark_reduces(Benchmark benchmark) {
  const std::optional<Collective> collective = benchmark_collective(benchmark);
  return collective && collective_reduces(*collective);
}

bool benchmark_has_root(Benchmark benchmark) {
  const std::optional<Collective> collective = benchmark_collective(benchmark);
  return collective && collective_has_root(*collective);
}

bool benchmark_has(Benchmark benchmark, Placement placement) {
  switch (benchmark) {
    case Benchmark::kBroadcast:
      return placement == Placement::kInPlace;
    case Benchmark::kAllToAll:
    case Benchmark::kBarrier:
    case Benchmark::kSendRecv:
    case Benchmark::kPingPong:
    case Benchmark::kBurst:
      return placement == Placement::kOutOfPlace;
    default:
      return true;
  }
}

bool benchmark_fits(Benchmark benchmark, int world) {
  if (benchmark == Benchmark::kPingPong || benchmark == Benchmark::kBurst) return world % 2 == 0;
  return benchmark != Benchmark::kSendRecv || world > 1;
}

int benchmark_messages(Benchmark benchmark) {
  if (benchmark == Benchmark::kBurst) return kBurstMessages;
  return benchmark == Benchmark::kPingPong ? 2 : 1;
}

std::optional<DType> dtype_by_name(std::string_view name) {
  if (name == "half") return DType::kFloat16;
  if (name == "float") return DType::kFloat32;
  if (name == "double") return DType::kFloat64;
  if (name == "int") return DType::kInt32;
  return find_name<DType>(name, kDTypes, dtype_name);
}

std::optional<Op> op_by_name(std::string_view name) {
  if (name == "prod") return Op::kProduct;
  if (name == "mulsum") return Op::kPremulSum;
  return find_name<Op>(name, kOps, op_name);
}

Extent extent_of(Benchmark benchmark, uint64_t size_bytes, DType dtype, int world) {
  if (benchmark == Benchmark::kBarrier) return {};
  const uint64_t width = dtype_bytes(dtype);
  const uint64_t ranks = static_cast<uint64_t>(world);
  const uint64_t blocks = is_blocked(benchmark) ? ranks : 1;
  const uint64_t count = std::max<uint64_t>(1, size_bytes / width / blocks);
  Extent extent{.bytes = count * blocks * width, .count = count, .input_elements = count, .output_elements = count};
  if (benchmark == Benchmark::kReduceScatter || benchmark == Benchmark::kScatter) extent.input_elements *= ranks;
  if (benchmark == Benchmark::kAllGather || benchmark == Benchmark::kGather) extent.output_elements *= ranks;
  if (benchmark == Benchmark::kAllToAll) extent.input_elements = extent.output_elements = count * ranks;
  if (benchmark == Benchmark::kBurst) extent.input_elements = extent.output_elements = count * kBurstMessages;
  return extent;
}

double bus_factor(Benchmark benchmark, int world) {
  if (world <= 1) return 0;
  const double n = world;
  switch (benchmark) {
    case Benchmark::kAllReduce:
      return 2 * (n - 1) / n;
    case Benchmark::kReduceScatter:
    case Benchmark::kAllGather:
    case Benchmark::kGather:
    case Benchmark::kScatter:
    case Benchmark::kAllToAll:
      return (n - 1) / n;
    default:
      return 1;
  }
}

bool benchmark_loads_ring_evenly(Benchmark benchmark) {
  return benchmark == Benchmark::kAllReduce || benchmark == Benchmark::kReduceScatter ||
         benchmark == Benchmark::kAllGather || benchmark == Benchmark::kAllToAll || benchmark == Benchmark::kSendRecv;
}

}  // namespace rondo::bench
