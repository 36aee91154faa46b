#include "bench/loop/measure.h"

#include <doctest/doctest.h>

#include <string>

#include "bench/loop/pattern.h"
#include "tests/bench/thread_group.h"

namespace rondo::bench {
namespace {

using Fault = ThreadWorld::Fault;

Measurement measure_with(const Exercise& exercise, uint64_t bytes, Fault fault, const Effort& effort) {
  ThreadWorld world(exercise.world, fault);
  const Extent extent = extent_of(exercise.benchmark, bytes, exercise.dtype, exercise.world);
  Measurement result;
  world.run([&](Group& group) {
    const Measurement measured = measure(group, exercise, extent, effort);
    if (group.rank() == 0) result = measured;
  });
  return result;
}

constexpr Effort kShort{.warmup = 1, .iterations = 20};

// Every dtype with every op in a world of 3; sums and float32 in the others.
TEST_CASE("a correct library shows 0 wrong: every benchmark, dtype, op, placement, worlds 1, 2, 3, 4") {
  for (int benchmark = 0; benchmark < kBenchmarks; ++benchmark) {
    for (int dtype = 0; dtype < kDTypes; ++dtype) {
      for (int op = 0; op < kOps; ++op) {
        for (int placement = 0; placement < 2; ++placement) {
          for (int world = 1; world <= 4; ++world) {
            const Exercise e{static_cast<Benchmark>(benchmark),
                             static_cast<Placement>(placement),
                             static_cast<DType>(dtype),
                             static_cast<Op>(op),
                             world,
                             world - 1};
            const bool reduces = benchmark_reduces(e.benchmark);
            if (!benchmark_has(e.benchmark, e.placement) || !benchmark_fits(e.benchmark, world)) continue;
            if (!op_supports(e.op, e.dtype)) continue;
            if (!reduces && e.op != Op::kSum) continue;
            if (world != 3 && e.op != Op::kSum && e.dtype != DType::kFloat32) continue;
            const Measurement m = measure_with(e, 96, Fault::kNone, kShort);
            INFO(std::string(benchmark_name(e.benchmark)), std::string(dtype_name(e.dtype)), std::string(op_name(e.op)),
                 " world ", world, " placement ", placement);
            CHECK(m.wrong == 0);
            CHECK(m.batch_us.size() >= 10);
          }
        }
      }
    }
  }
}

TEST_CASE("every fault of the library is counted: a lost block, a shifted block, a flipped bit") {
  for (int benchmark = 0; benchmark < kBenchmarks; ++benchmark) {
    const auto kind = static_cast<Benchmark>(benchmark);
    if (kind == Benchmark::kBarrier) continue;
    const Placement placement = benchmark_has(kind, Placement::kInPlace) ? Placement::kInPlace : Placement::kOutOfPlace;
    const Exercise e{kind, placement, DType::kFloat32, Op::kSum, 2, 0};
    for (Fault fault : {Fault::kLostBlock, Fault::kShiftedBlock, Fault::kFlippedBit}) {
      INFO(std::string(benchmark_name(kind)), " fault ", static_cast<int>(fault));
      CHECK(measure_with(e, 4096, fault, {.warmup = 1, .iterations = 10}).wrong > 0);
    }
  }
}

TEST_CASE("an all_reduce that is skipped inside a batch is noticed, in and out of place, for floats and integers") {
  for (Placement placement : {Placement::kInPlace, Placement::kOutOfPlace}) {
    for (DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kInt32, DType::kFloat8E4M3}) {
      const Exercise e{Benchmark::kAllReduce, placement, dtype, Op::kSum, 2, 0};
      CHECK(measure_with(e, 4096, Fault::kLostOperation, kShort).wrong > 0);
    }
  }
}

TEST_CASE("without checking, nothing is called wrong") {
  const Exercise e{Benchmark::kAllReduce, Placement::kInPlace, DType::kFloat32, Op::kSum, 2, 0};
  Effort effort = kShort;
  effort.check = false;
  CHECK(measure_with(e, 4096, Fault::kFlippedBit, effort).wrong == 0);
}

TEST_CASE("an operation in parts is one call a part, right in every element, and its faults are noticed") {
  for (Placement placement : {Placement::kInPlace, Placement::kOutOfPlace}) {
    const Exercise e{Benchmark::kAllReduce, placement, DType::kFloat32, Op::kSum, 2, 0, {1, 300, 7, 716}};
    const Measurement measured = measure_with(e, 4096, Fault::kNone, kShort);
    CHECK(measured.wrong == 0);
    CHECK(measured.cpu_us > 0);
    CHECK(measure_with(e, 4096, Fault::kFlippedBit, {.warmup = 1, .iterations = 10}).wrong > 0);
    CHECK(measure_with({Benchmark::kAllReduce, placement, DType::kFloat32, Op::kSum, 2, 0, {1, 300, 7}}, 4096,
                       Fault::kNone, kShort)
              .wrong > 0);  // a part that is left out
  }
}

TEST_CASE("batches: what is asked for, within what the arithmetic allows") {
  CHECK(plan_batches({.iterations = 20}, 180, 1.0, false) == Batching{2, 10});
  CHECK(plan_batches({.iterations = 1000}, 180, 1.0, false) == Batching{100, 10});
  CHECK(plan_batches({.iterations = 5000}, 180, 1.0, false) == Batching{180, 28});
  CHECK(plan_batches({.iterations = 3}, 180, 1.0, false) == Batching{1, 3});
  // 3 us an operation: 500 us need 167 of them; a quarter of a second holds 499 batches, 400 are enough.
  CHECK(plan_batches({}, 180, 3.0, false) == Batching{167, 400});
  CHECK(plan_batches({}, 90, 3.0, false) == Batching{90, 400});
  CHECK(plan_batches({}, 180, 20'000.0, false) == Batching{1, 13});
  CHECK(plan_batches({}, 180, 1e9, false) == Batching{1, 10});
  // With more ranks than cores a batch lasts 5 ms.
  CHECK(plan_batches({}, 180, 200.0, true) == Batching{25, 50});
  CHECK(plan_batches({}, 60, 30.0, true) == Batching{60, 139});
  CHECK(plan_batches({.iterations = 1000}, 180, 1.0, true) == Batching{100, 10});
}

}  // namespace
}  // namespace rondo::bench
