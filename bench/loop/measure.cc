#include "bench/loop/measure.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <limits>
#include <optional>

namespace rondo::bench {
namespace {

using Clock = std::chrono::steady_clock;

// A batch should last so long that the skew with which ranks leave the barrier is lost in it: a few microseconds, or,
// where some must wait for a core, the turns of others (8 ranks on 2 cores: some 100 us).
constexpr double kBatchUs = 500;
constexpr double kCrowdedBatchUs = 5000;
constexpr uint32_t kFewestBatches = 10;  // for a p99 that is more than the maximum of three
constexpr uint32_t kMostBatches = 400;

// What this process has cost so far, all its threads together.
double cpu_us() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

void run_once(Group& group, const Call& call, const std::vector<uint64_t>& parts) {
  if (parts.empty()) {
    group.run(call);
  } else {
    group.run_parts(call, parts);
  }
}

struct Batch {
  double operation_us = 0;  // the slowest rank's
  double cpu_us = 0;        // this rank's, of all operations
};

// Refills outside the clock. The barrier comes last before it, so that all ranks begin together.
Batch timed_batch(Group& group, Buffers& buffers, const Exercise& exercise, uint32_t operations) {
  buffers.refill();
  group.begin_batch();
  group.barrier();
  const double cpu_before = cpu_us();
  const Clock::time_point start = Clock::now();
  for (uint32_t i = 0; i < operations; ++i) run_once(group, buffers.call(i), exercise.parts);
  const std::optional<double> own_clock = group.complete();
  const double us =
      own_clock ? *own_clock * 1e6 : std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  const double cpu = cpu_us() - cpu_before;
  group.end_batch();
  return {group.max(us) / operations, cpu};
}

// The time of one operation in the last of the warm-up's batches. The first operation of all makes what the others only
// use (links, plans, memory): it is no measure of them, and a batch by it would be too short.
double warm_up(Group& group, Buffers& buffers, const Exercise& exercise, const Effort& effort, uint32_t most) {
  // Without a warm-up one more operation still has to say how long a batch is; its time is no result.
  const uint32_t operations = std::max(effort.warmup.value_or(kTrialOperations), 1u);
  const double longest_us =
      effort.warmup ? std::numeric_limits<double>::infinity() : kTrialSeconds * effort.seconds * 1e6;
  double operation_us = timed_batch(group, buffers, exercise, 1).operation_us;
  double us = 0;  // as all ranks measured it together
  for (uint32_t done = 0; done < operations && (done == 0 || us < longest_us);) {
    const double fit = std::max(1.0, (longest_us - us) / std::max(operation_us, 0.01));
    const auto batch = static_cast<uint32_t>(std::min<double>(fit, std::min(most, operations - done)));
    operation_us = timed_batch(group, buffers, exercise, batch).operation_us;
    us += operation_us * batch;
    done += batch;
  }
  return operation_us;
}

// The same for all ranks, also if they are on machines of different sizes.
bool has_more_ranks_than_cores(Group& group) {
  return group.max(static_cast<double>(group.size()) / static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN))) > 1;
}

// In double until the end: the value may be beyond any integer.
uint32_t ceil_clamped(double value, uint32_t low, uint32_t high) {
  return static_cast<uint32_t>(std::clamp(std::ceil(value), static_cast<double>(low), static_cast<double>(high)));
}

}  // namespace

// `most` always holds: beyond it results prove nothing.
Batching plan_batches(const Effort& effort, uint32_t most, double operation_us, bool crowded, uint32_t fewest) {
  if (effort.iterations > 0) {
    const uint32_t operations = std::clamp(effort.iterations / kFewestBatches, 1u, most);
    return {operations, (effort.iterations + operations - 1) / operations};
  }
  const double us = std::max(operation_us, 0.01);
  const uint32_t operations = ceil_clamped((crowded ? kCrowdedBatchUs : kBatchUs) / us, fewest, most);
  const double wanted = effort.seconds * 1e6 / (us * operations);
  return {operations, ceil_clamped(wanted, kFewestBatches, kMostBatches)};
}

// Collective. Every number that decides how many operations follow is the same on all ranks.
Measurement measure(Group& group, const Exercise& exercise, const Extent& extent, const Effort& effort) {
  Buffers buffers(group, exercise, extent);
  const uint32_t most = max_operations(exercise);
  const double operation_us = warm_up(group, buffers, exercise, effort, most);
  const bool crowded = has_more_ranks_than_cores(group);
  const uint32_t fewest = std::min(group.fewest_in_batch(), most);
  Batching batching = plan_batches(effort, most, operation_us, crowded, fewest);
  // The first operations may be slower by far than those that follow, and a batch of few of them too short.
  if (batching.operations > 1) {
    const double steady_us = timed_batch(group, buffers, exercise, batching.operations).operation_us;
    batching = plan_batches(effort, most, steady_us, crowded, fewest);
  }
  Measurement out;
  uint64_t wrong = 0;
  double cpu = 0;
  for (uint32_t batch = 0; batch < batching.batches; ++batch) {
    const Batch timed = timed_batch(group, buffers, exercise, batching.operations);
    out.batch_us.push_back(timed.operation_us);
    cpu += timed.cpu_us;
    if (effort.check) wrong += buffers.wrong_after(batching.operations);
  }
  out.wrong = group.sum(wrong);
  const double operations = static_cast<double>(batching.operations) * batching.batches;
  // Sums travel as whole nanoseconds: Group adds integers.
  out.cpu_us = static_cast<double>(group.sum(static_cast<uint64_t>(cpu * 1e3))) / 1e3 / operations;
  return out;
}

}  // namespace rondo::bench
