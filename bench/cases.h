#pragma once

#include <vector>

#include "bench/options.h"

namespace rondo::bench {

// One line of the table: everything but the placement.
struct Case {
  Benchmark benchmark = Benchmark::kAllReduce;
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;
  int root = -1;  // -1 where there is none
  uint64_t size = 0;
  bool operator==(const Case&) const = default;
};

// What the options ask for in this world, in the order of the table. Combinations that are not defined are left out,
// so are operations of collectives that reduce nothing, and of all benchmarks those that this world cannot run. Throws
// Exception(kInvalid) if the root does not exist, a benchmark is named that this world cannot run, or nothing is left.
std::vector<Case> cases_of(const Options& options, int world);

// The sizes whose rows have a bandwidth limit: ranks of one host over TCP, all sending and receiving at once.
std::vector<uint64_t> limited_sizes(const Options& options, int world);

}  // namespace rondo::bench
