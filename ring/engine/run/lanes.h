#pragma once

#include <cstdint>
#include <span>

#include "ring/engine/call/call.h"
#include "ring/engine/run/lane_run.h"
#include "ring/engine/run/run.h"

namespace rondo {

// What the runs by lanes have in common.

// What is the same for all operations of a call that was prepared; the rest comes with RunStart.
Binding binding_of(const CheckedCall& call, const Plan& plan, const Blocks& blocks, const Slicing& slicing);
inline void bind_operation(Binding& binding, const RunStart& start) {
  binding.input = start.input;
  binding.output = start.output;
  binding.sequence = start.sequence;
  binding.fingerprint = start.fingerprint;
  if (binding.wire.format == WireFormat::kNone) return;
  binding.wire = {binding.wire.format, start.wire->stochastic, start.wire->seed, start.wire->residual};
}

inline LaneRun::Landing landing_of(Pass pass) {
  return pass == Pass::kBeforeSleep ? LaneRun::Landing::kSlotNow : LaneRun::Landing::kWait;
}

// One pass over each lane that is not done. `done`: all are.
struct LanesProgress {
  bool moved = false;
  bool done = true;
};
inline LanesProgress progress_lanes(std::span<LaneRun> lanes, Pass pass) {
  LanesProgress progress;
  for (LaneRun& lane : lanes) {
    if (lane.done()) continue;
    progress.moved |= lane.progress(landing_of(pass));
    progress.done &= lane.done();
  }
  return progress;
}
uint64_t slices_combined(std::span<const LaneRun> lanes);
// The first element that is not finite of the parts of the result that these lanes have.
WireNote not_finite_of_lanes(std::span<const LaneRun> lanes);
// The first failure among them.
RunFailure failure_of_lanes(std::span<const LaneRun> lanes, const Plan& plan);

}  // namespace rondo
