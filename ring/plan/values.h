#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ring/plan/expression.h"
#include "ring/plan/plan.h"

namespace rondo {

enum class Buffers : uint8_t { kOutOfPlace, kInPlace };
enum class Scaling : uint8_t { kAtFold, kAtSource };  // PlanRequest::scale_at_source

// What travels between ranks: elements as they are in memory, or coded in a wire format. A step encodes what it sends,
// once for all its targets; one that only passes on what it receives sends the same bytes; what a step that sends also
// stores is the decoded value, as its receivers have it. The caller's memory narrows what is stored in it; scratch, of
// the type of folds, does not.
enum class Wire : uint8_t { kPlain, kCoded };

// Runs all ranks on symbolic values, a block at a time over links without limit, and compares what the
// outputs hold with what the collective promises (goal.h). Each rank's steps run in order and links are first in, first
// out, so the values do not depend on timing: one run stands for all.
// Coded: also that no rank encodes a block twice, so that one residual a rank and element keeps all that is lost.
std::optional<std::string> check_values(std::span<const Plan> plans, Buffers buffers, Scaling scaling,
                                        Wire wire = Wire::kPlain);

// Checks signals: after a barrier every rank has heard from every rank.
std::optional<std::string> check_barrier(std::span<const Plan> plans);

// The first round of that run, out of place, for programs that draw it.
struct ValueTrace {
  // What a piece of memory or a message holds.
  struct Held {
    std::vector<int> ranks;  // whose contributions, in the order in which they were folded
    uint32_t block = 0;      // of their inputs
    bool finished = false;   // the fold is complete
  };
  struct Executed {
    int rank = 0;
    uint32_t step = 0;            // of its plan
    uint32_t depth = 0;           // messages in a row that it waits for, the rank's steps before it included
    Value value = kNoValue;       // index in `values`; kNoValue: a signal or a wait
    std::vector<Value> operands;  // by source
    std::vector<int> heard;       // a signal or a wait: the ranks that this rank has heard from, itself included
  };
  struct Message {
    size_t sent = 0, received = 0;  // indices in `steps`
  };
  std::vector<Held> values;       // by Value
  std::vector<Executed> steps;    // a cause before its effects; of one rank in its order
  std::vector<Message> messages;  // of one pair of ranks in their order
};

// Traces plans that pass verify_values(). Throws Exception(kInternal) naming rank and step for others.
ValueTrace trace_values(std::span<const Plan> plans);

}  // namespace rondo
