#pragma once

#include <cstdint>
#include <span>

#include "ring/engine/observe/step_observer.h"
#include "ring/engine/run/binding.h"
#include "ring/engine/run/slice_mover.h"
#include "ring/plan/walk.h"
#include "transport/link.h"

namespace rondo {

// Runs a plan: round by round, step by step, slice by slice. A Walk (ring/plan/walk.h) says which
// slice is next, and what it must wait for; a SliceMover moves it. Never blocks, allocates, locks, logs or
// throws per slice. One thread at a time.
class PlanRun {
 public:
  // Binds the plan and starts the first call. links[i] is the link to plan->peers[i]; none where the
  // plan is over windows, whose ranks meet at barriers of the channel. Vectors keep their capacity from one
  // call to the next.
  void start(const Binding& binding, std::span<Link* const> links);
  // Starts the next operation of the same kind, over the same links. Not for pairwise counts: the fingerprints
  // of their steps contain that of the call.
  void start_again(const RunStart& start);

  // Moves what can move now, but only some slices, so that failures and deadlines are noticed. True if anything
  // moved.
  //
  // A landing in the caller's memory waits while data is still sent from there. With kBeforeSleep the slice is
  // read ahead into a slot instead, at the cost of a copy: otherwise nothing might wake the sleeper.
  bool progress(Pass pass);

  // Every slice is combined and sent: the links use no memory of the call any more.
  bool done() const { return walk_.done(); }
  // Slices combined so far: grows while the operation moves.
  uint64_t combined() const { return walk_.combined().number; }

  // The first element of the result that is not finite, where the call has a wire format.
  const WireNote& not_finite() const { return mover_.not_finite(); }

  // Why it does not move any more.
  RunFailure failure() const { return mover_.failure(); }

 private:
  const Binding& binding() const { return mover_.binding(); }
  // To the first slice, with the next barriers of the channel.
  void begin();
  void bind_step(const Step& step, BoundStep& bound);
  Slice slice_at(const Cursor& cursor) const;

  // Landings: where the next slices of the sources are to arrive. Posted in the order of the plan.
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
  // Tells the walk how far the links have sent, so that memory of earlier slices may be written again.
  void retire() { walk_.set_sent(mover_.oldest_unsent(walk_.combined().number)); }

  Walk<BoundStep> walk_;
  SliceMover mover_;
  StepObserver observer_;
  uint32_t posted_source_ = 0;  // sources of the step at walk_.posted() that are dealt with
  // Passes in a row in which nothing moved.
  uint32_t idle_passes_ = 0;
};

}  // namespace rondo
