#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "bench/loop/benchmark.h"
#include "bench/loop/measure.h"
#include "ring/base/types.h"

namespace rondo::bench {

// What the command line asks for, checked and resolved (docs/bench.md lists the options).
struct Options {
  std::vector<Benchmark> benchmarks{Benchmark::kAllReduce};
  bool all_benchmarks = false;  // "all": those of them that the world can run
  std::vector<uint64_t> sizes;  // bytes
  std::string list;             // "" or a list of tensors (tensors.h) in the place of sizes
  bool fused = false;           // the list is one call
  std::vector<DType> dtypes{DType::kFloat32};
  std::vector<Op> ops{Op::kSum};
  int root = 0;  // -1: every rank in turn
  std::vector<Placement> placements{Placement::kOutOfPlace, Placement::kInPlace};
  BufferKind buffers = BufferKind::kPlain;

  Effort effort;
  uint32_t aggregate = 1;  // operations that one call carries (all_reduce_many); times are of one of them
  bool blocking = true;    // false: each operation is started, and then waited for

  int ranks = 0;  // > 0: this process starts them; 0: a launcher has, or else 2
  bool inproc = false;
  bool on_device = false;  // buffers in device memory, calls on streams
  std::string transport;   // "": Config's
  Algorithm algorithm = Algorithm::kAuto;
  int64_t timeout_ms = 60'000;                   // of one operation
  std::optional<int64_t> start_timeout_ms = {};  // of joining; nullopt: the configured one

  bool limit = true;  // with transport tcp: measured, and compared with

  std::string json;  // a file; "": not written
  bool verbose = false;

  double load_average = -1;  // before the run started; -1: this process reads it
  // Whether this is a rank that rondo-bench has started itself.
  bool started_here() const { return load_average >= 0; }
};

// The run ends before it starts: help (code 0, to standard output) or a bad option (code 2, to standard error).
struct Stop {
  int code = 0;
  std::string text;
};

// args: without the program's name.
std::variant<Options, Stop> parse_options(std::vector<std::string> args);

}  // namespace rondo::bench
