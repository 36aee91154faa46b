#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace rondo::bench {
namespace {

using Clock = std::chrono::steady_clock;

// A batch should last so long that the skew with which ranks leave the barrier (a few microseconds) is lost in it.
constexpr double kBatchUs = 500;
constexpr uint32_t kFewestBatches = 10;  // for a p99 that is more than the maximum of three
constexpr uint32_t kMostBatches = 400;

double timed_batch(Group& group, Buffers& buffers, uint32_t operations) {
  buffers.refill();
  group.barrier();
  const Clock::time_point start = Clock::now();
  for (uint32_t i = 0; i < operations; ++i) group.run(buffers.call(i));
  const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  return group.max(us) / operations;
}

// The time of one operation in the last of the warm-up's batches.
double warm_up(Group& group, Buffers& buffers, uint32_t operations, uint32_t most) {
  double operation_us = 0;
  for (uint32_t done = 0; done < operations;) {
    const uint32_t batch = std::min(most, operations - done);
    operation_us = timed_batch(group, buffers, batch);
    done += batch;
  }
  return operation_us;
}

uint32_t ceil_clamped(double value, uint32_t low, uint32_t high) {
  return static_cast<uint32_t>(std::clamp(std::ceil(value), static_cast<double>(low), static_cast<double>(high)));
}

}  // namespace

Batching plan_batches(const Effort& effort, uint32_t most, double operation_us) {
  if (effort.cold) most = 1;
  if (effort.iterations > 0) {
    const uint32_t operations = std::clamp(effort.iterations / kFewestBatches, 1u, most);
    return {operations, (effort.iterations + operations - 1) / operations};
  }
  const double us = std::max(operation_us, 0.01);
  const uint32_t operations = ceil_clamped(kBatchUs / us, 1, most);
  const double wanted = effort.seconds * 1e6 / (us * operations);
  return {operations, ceil_clamped(wanted, kFewestBatches, kMostBatches)};
}

Measurement measure(Group& group, const Exercise& exercise, const Extent& extent, const Effort& effort) {
  Buffers buffers(exercise, extent, group.rank());
  const uint32_t most = max_operations(exercise);
  // Without a warm-up one operation still has to say how long a batch is; its time is no result.
  const double operation_us = warm_up(group, buffers, std::max(effort.warmup, 1u), effort.cold ? 1 : most);
  const Batching batching = plan_batches(effort, most, operation_us);
  Measurement out;
  uint64_t wrong = 0;
  for (uint32_t batch = 0; batch < batching.batches; ++batch) {
    out.batch_us.push_back(timed_batch(group, buffers, batching.operations));
    if (effort.check) wrong += buffers.wrong_after(batching.operations);
  }
  out.wrong = group.sum(wrong);
  return out;
}

}  // namespace rondo::bench
