#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "ring/plan/build.h"

namespace rondo {

struct PlanRunOptions {
  uint64_t bytes = 1 << 20;  // of the whole buffer, for bytes on links and times; 1 or more
  int values = 0;            // elements of the example's numbers, 1 .. kMostValues; 0: none
};

inline constexpr int kMostValues = 64;

// What happens when the plans of all ranks run, as one object that a program can draw without computing anything:
// contributions from trace_values(), times from simulate_recorded(). Keys:
//   rows       memory that is shown of each rank: "data", or "input" and "output" where they cannot be one; "staging"
//              (shared memory of the library); of a barrier "heard"
//   values     {ranks, block, finished, numbers}: what memory or a message can hold; others name its index
//   initial    [rank, row, block, value]
//   events     a step of a rank, a cause before its effects: depth (messages in a row before it), end_us, value (-1: a
//              signal or a wait), block, writes ([rank, row, block]); passes: the value is kept outside of the rows
//              until depth `until`, microsecond `until_us`
//   moves      between ranks, by an event: kind message, signal, load or store; begin and end as depths and in
//              microseconds (messages only); phase
//   cost       time_us of the simulated call by the default cost model; timed: events and moves have times
// request.rank is not used. Throws as build_plan(), and Exception(kInvalid) for options out of range.
nlohmann::ordered_json plan_run_json(const PlanRequest& request, const PlanRunOptions& options);

}  // namespace rondo
