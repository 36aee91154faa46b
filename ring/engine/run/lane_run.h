#pragma once

#include <cstdint>
#include <span>

#include "ring/engine/observe/lane_observer.h"
#include "ring/engine/run/binding.h"
#include "ring/engine/run/slice_mover.h"
#include "ring/plan/walk.h"
#include "transport/link.h"

namespace rondo {

// Runs one lane of a plan: round by round, step by step, slice by slice. Where it is says a Walk (ring/plan/walk.h);
// what a slice does, a SliceMover. Never blocks, allocates, locks, logs or throws per slice. One thread at a time.
class LaneRun {
 public:
  // links[i] is the link to plan->peers[i]; none where the plan is over windows, whose ranks meet by the channel.
  // Keeps its vectors' capacity from one call to the next.
  void start(const Binding& binding, uint32_t lane, std::span<Link* const> links);
  // Starts the same call once more, over the same links. Not for pairwise counts.
  void start_again(const RunStart& start);

  // Moves what can be moved now, some slices at most, so that a failure or a deadline is seen soon. True if anything
  // moved. A landing waits for the caller's memory while what is sent from there is under way; kBeforeSleep: it is read
  // ahead into a slot (one copy more), or nothing may wake the caller.
  bool progress(Pass pass);

  // Every slice is combined, and the links have no more of this lane's memory and nothing left to send.
  bool done() const { return walk_.done(); }
  // Slices combined so far: grows while the operation moves.
  uint64_t combined() const { return walk_.combined().number; }

  // The first element of the result that is not finite, where the call has a wire format.
  const WireNote& not_finite() const { return mover_.not_finite(); }

  // Why it does not move any more.
  RunFailure failure() const { return mover_.failure(); }

 private:
  const Binding& binding() const { return mover_.binding(); }
  void begin();
  void bind_step(const Step& step, BoundStep& bound);
  Slice slice_at(const Cursor& cursor) const;

  bool post(Pass pass);
  bool post_landing(const Ref& ref, Pass pass);
  std::byte* landing_for(const BoundStep& step, const Slice& slice) const;

  bool combine_one();
  bool ready(const BoundStep& step);
  void arrive(const BoundStep& step);
  bool all_arrived(const BoundStep& step);
  // A slice of this step is combined.
  void pass_combined(const BoundStep& step, size_t bytes) {
    observer_.on() ? pass_observed(step, bytes) : walk_.pass_combined();
  }
  void pass_observed(const BoundStep& step, size_t bytes);
  bool pump() {
    const bool moved = mover_.pump();
    if (moved) observer_.worked();
    return moved;
  }
  void retire() { walk_.set_sent(mover_.oldest_unsent(walk_.combined().number)); }

  uint32_t lane_ = 0;
  Walk<BoundStep> walk_;
  SliceMover mover_;
  LaneObserver observer_;
  uint32_t posted_source_ = 0;  // sources of the step at walk_.posted() that are dealt with
  uint32_t idle_passes_ = 0;
};

}  // namespace rondo
