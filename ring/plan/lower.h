#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ring/plan/plan.h"

namespace rondo {

// A plan over registered memory as work for a stream of a device. Nothing in it waits but the stream, for words: every
// rank has a word for each number below `words` and each other rank. In the n-th call all signals write n, and a stream
// awaits at least n, so that a rank that is a call ahead hides nothing.
struct StreamEntry {
  enum class Kind : uint8_t {
    kSignal,  // writes word `index` of each of `peers` that is this rank's there
    kAwait,   // awaits the own word `index` of each of `peers`
    kPass     // runs step `index` of Plan::steps, one kernel
  };
  Kind kind = Kind::kPass;
  uint32_t index = 0;
  std::vector<int> peers;
  bool operator==(const StreamEntry&) const = default;
};

struct StreamProgram {
  uint32_t words = 0;
  std::vector<StreamEntry> entries;
};

// What the stream of plan.rank gets: first all ranks meet (word 0), since no host has heard from the others; then the
// steps, with a word for each barrier of the plan. Pure. Throws Exception(kInternal) for a plan of several lanes, of
// scratch or staging memory, or that sends data over links.
StreamProgram lower(const Plan& plan);

// Whether the programs of all ranks run the steps of their plans in order, come to an end, and order every two accesses
// to the same memory of which one writes: over three calls in a row on the same buffers, in place or not, with what the
// programs of the ranks do to their buffers before and after. Nothing: all is well; else why not, in words.
std::optional<std::string> check_streams(std::span<const Plan> plans, std::span<const StreamProgram> programs);

}  // namespace rondo
