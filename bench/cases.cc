#include "bench/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "bench/limit/limit.h"
#include "bench/loop/tensors.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

// An operation of a benchmark that reduces nothing is not read: one stands for all.
std::vector<Op> ops_of(const Options& options, Benchmark benchmark) {
  return benchmark_reduces(benchmark) ? options.ops : std::vector{Op::kSum};
}

// -r all: each root in turn.
std::vector<int> roots_of(const Options& options, Benchmark benchmark, int world) {
  if (!benchmark_has_root(benchmark)) return {-1};
  if (options.root >= 0) return {options.root};
  std::vector<int> all(static_cast<size_t>(world));
  for (int root = 0; root < world; ++root) all[static_cast<size_t>(root)] = root;
  return all;
}

// Whether the benchmark has one of the placements that were asked for.
bool has_a_placement(const Options& options, Benchmark benchmark) {
  return std::any_of(options.placements.begin(), options.placements.end(),
                     [&](Placement placement) { return benchmark_has(benchmark, placement); });
}

// A list of tensors is one line: the sum of them.
std::vector<uint64_t> sizes_of(const Options& options, DType dtype) {
  if (options.list.empty()) return options.sizes;
  const std::vector<uint64_t> tensors = tensors_by_name(options.list).value();
  return {std::accumulate(tensors.begin(), tensors.end(), uint64_t{0}) * dtype_bytes(dtype)};
}

[[noreturn]] void refuse_world(Benchmark benchmark, int world) {
  const char* wanted = benchmark == Benchmark::kSendRecv ? "2 ranks or more" : "an even number of ranks";
  throw Exception(ErrorCode::kInvalid, fmt::format("--collective {}: needs {}, not {}; start {} (--ranks {})",
                                                   benchmark_name(benchmark), wanted, world, world + 1, world + 1));
}

}  // namespace

std::vector<Case> cases_of(const Options& options, int world) {
  if (options.root >= world) {
    throw Exception(ErrorCode::kInvalid, fmt::format("-r: root {} does not exist among {} ranks", options.root, world));
  }
  std::vector<Case> cases;
  for (Benchmark benchmark : options.benchmarks) {
    if (!has_a_placement(options, benchmark)) continue;
    // A barrier has no data: one line, whatever types, operations and sizes were asked for.
    if (benchmark == Benchmark::kBarrier) {
      cases.push_back({benchmark, DType::kUint8, Op::kSum, -1, 0});
      continue;
    }
    if (!benchmark_fits(benchmark, world)) {
      if (options.all_benchmarks) continue;
      refuse_world(benchmark, world);
    }
    for (DType dtype : options.dtypes) {
      for (Op op : ops_of(options, benchmark)) {
        if (benchmark_reduces(benchmark) && !op_supports(op, dtype)) continue;
        for (int root : roots_of(options, benchmark, world)) {
          for (uint64_t size : sizes_of(options, dtype)) cases.push_back({benchmark, dtype, op, root, size});
        }
      }
    }
  }
  if (cases.empty())
    throw Exception(ErrorCode::kInvalid, "nothing to measure: no such operation on this type, world or placement");
  return cases;
}

// Only what every rank sends and receives at once over TCP can be compared with a ring of raw connections.
std::vector<uint64_t> limited_sizes(const Options& options, int world) {
  const bool over_tcp = !options.inproc && options.transport == "tcp";  // "auto" shares memory
  const bool even = std::any_of(options.benchmarks.begin(), options.benchmarks.end(), benchmark_loads_ring_evenly);
  if (!options.limit || world < 2 || !over_tcp || !even) return {};
  std::vector<uint64_t> sizes;
  for (uint64_t size : options.sizes) {
    if (size >= kLimitFromBytes) sizes.push_back(size);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

}  // namespace rondo::bench
