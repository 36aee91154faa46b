#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "bench/loop/buffers.h"
#include "bench/loop/group.h"

namespace rondo::bench {

// How long and how carefully one exercise is measured. Equal on all ranks.
struct Effort {
  // Operations before the first timed one. nullopt: as many as a choice by trials takes (kTrialOperations), while they
  // fit into kTrialSeconds times `seconds`.
  std::optional<uint32_t> warmup = {};
  uint32_t iterations = 0;  // timed operations; 0: as many as fit into `seconds`
  double seconds = 0.25;    // of timed operations, where iterations is 0
  bool check = true;
};

// Trials (Trials, ring/engine/route): 7 ways of 12 calls each, the best with other stores, then all once more.
inline constexpr uint32_t kTrialOperations = 256;
inline constexpr double kTrialSeconds = 8;

// A measurement is `batches` batches of `operations` operations each.
struct Batching {
  uint32_t operations = 1;
  uint32_t batches = 1;
  bool operator==(const Batching&) const = default;
};

// most: max_operations(); operation_us: what one operation takes, by those before the first timed one; crowded: there
// are more ranks than cores.
// fewest: operations of a batch, where iterations are not asked for.
Batching plan_batches(const Effort& effort, uint32_t most, double operation_us, bool crowded, uint32_t fewest = 1);

struct Measurement {
  std::vector<double> batch_us;  // one a batch: its time, divided by the operations
  uint64_t wrong = 0;            // elements on all ranks, over all checked batches
  double cpu_us = 0;             // processor time of one operation, all threads of all ranks together
};

// Collective: all ranks get the same result. Each batch: refill, barrier, the timed operations, check; only the
// operations are under the clock. Group's exceptions pass through.
Measurement measure(Group& group, const Exercise& exercise, const Extent& extent, const Effort& effort);

}  // namespace rondo::bench
