#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "bench/benchmark.h"
#include "bench/measure.h"
#include "ring/base/types.h"

namespace rondo::bench {

// What the command line asks for, checked and resolved (docs/bench.md lists the options).
struct Options {
  std::vector<Benchmark> benchmarks{Benchmark::kAllReduce};
  std::vector<uint64_t> sizes;  // bytes
  std::string list;             // "" or a list of tensors (tensors.h) in the place of sizes
  bool fused = false;           // the list is one call
  std::vector<DType> dtypes{DType::kFloat32};
  std::vector<Op> ops{Op::kSum};
  int root = 0;  // -1: every rank in turn
  std::vector<Placement> placements{Placement::kOutOfPlace, Placement::kInPlace};
  BufferKind buffers = BufferKind::kPlain;

  Effort effort;
  uint32_t repeat = 1;

  int ranks = 0;  // > 0: this process starts them; 0: a launcher has
  bool inproc = false;
  std::string transport;     // "": Config's
  uint32_t lanes = 0;        // 0: Config's
  uint32_t connections = 0;  // 0: Config's
  Algorithm algorithm = Algorithm::kAuto;
  int64_t timeout_ms = 60'000;  // of one operation, and of joining

  enum class LimitUse : uint8_t { kNone, kCached, kRemeasure };
  LimitUse limit = LimitUse::kCached;
  bool limit_only = false;
  std::string limit_cache;  // "": the default path
  bool bars = false;
  std::vector<std::string> compare;      // peers (entrant.h)
  int runs = 5;                          // of --compare and --bars, interleaved
  int turns = 4;                         // of each run; the fastest counts
  std::string baseline, write_baseline;  // files; "": none
  std::string calibrate;                 // the file of a cost model; ""
  std::string name_space;                // a congestion control: run `program` in a network namespace under it
  std::vector<std::string> program;

  std::string json, csv;  // files; "": not written
  bool verbose = false;

  // Of a rank that rondo-bench has started itself.
  int spawned_rank = -1;
  std::string rendezvous;
  double load_average = -1;  // before the run started; -1: this process reads it
};

// The run ends before it starts: help (code 0, to standard output) or a bad option (code 2, to standard error).
struct Stop {
  int code = 0;
  std::string text;
};

// args: without the program's name.
std::variant<Options, Stop> parse_options(std::vector<std::string> args);

}  // namespace rondo::bench
