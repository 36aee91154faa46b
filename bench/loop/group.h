#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "bench/loop/benchmark.h"

namespace rondo::bench {

// One call of what is timed, with buffers and argument as this rank passes them.
struct Call {
  Benchmark benchmark = Benchmark::kAllReduce;
  const std::byte* input = nullptr;  // broadcast: the same as output
  std::byte* output = nullptr;
  uint64_t count = 0;
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;
  int root = 0;
};

// The ranks that are measured, seen from one of them. The library under test implements it (rondo_group.h); tests have
// a group of threads. Every function is collective and throws on failure.
class Group {
 public:
  Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // What is timed. Returns when this rank's output is complete and its input may be changed.
  virtual void run(const Call& call) = 0;
  // The same for tensors of `count` elements that lie one after the other in the call's buffers: a call each.
  virtual void run_parts(const Call& call, std::span<const uint64_t> counts);
  // Memory for buffers that are timed: a page's alignment at least. Throws std::bad_alloc, or what the library throws.
  virtual std::byte* allocate(uint64_t bytes);
  virtual void deallocate(std::byte* memory);
  // Around the operations of a batch, outside the clock: its buffers are moved to where the operations find them, and
  // back.
  virtual void begin_batch() {}
  virtual void end_batch() {}
  // The last that is under the clock: all operations of the batch are over on this rank. Seconds that they took where
  // they ran, by a clock of its own; none: the host's counts.
  virtual std::optional<double> complete() { return std::nullopt; }
  // Operations of a batch, at least, where the arithmetic allows so many.
  virtual uint32_t fewest_in_batch() const { return 1; }
  // The name of the algorithm that run() uses for it.
  virtual std::string algorithm(const Call& call) const = 0;

  // Outside the clock:
  virtual void barrier() = 0;
  virtual double max(double value) = 0;
  virtual uint64_t sum(uint64_t value) = 0;
};

}  // namespace rondo::bench
