#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ring/plan/layout.h"
#include "ring/plan/plan.h"

namespace rondo {

// What the order of slices depends on in one step.
struct WalkStep {
  const Ref* memory = nullptr;  // the first ref in this rank's memory, whose block says how long the step is
  uint64_t count = 0;           // elements of that block
  uint64_t first_number = 0;    // of its first slice in the round that combined() is in, once combined() is that far
  uint32_t after = kNoStep;     // Step::after
  uint16_t barrier = 0;         // Step::barrier
  bool each_round = false;      // kEachRound
  bool counted = false;         // an empty block is one empty slice of the first round
  bool writes = false;          // to memory
  bool writes_scratch = false;
  bool lands = false;  // one source, which a link brings, and which is written

  bool signal() const { return memory == nullptr; }  // or a wait: no data, one empty slice
};

// The slice `slice` of step `step` in round `round`.
struct Cursor {
  uint64_t number = 0;  // slices before it
  uint64_t round = 0;
  uint32_t step = 0;
  uint32_t slice = 0;
  uint32_t slices = 0;  // of this step in this round
  bool at_end = false;
};

// How one rank walks through its plan: for round { for step { for slice } }. Three counters of slices say how far it
// is:
//     posted >= combined >= sent
// posted: landings given to the links; combined: folded and handed to the links; sent: no link reads them any more.
// The executor (ring/engine/run/plan_run.h) and the proof of progress (machine.h) both walk by this class, so the rules
// that are proved are the rules that run. No link, no user memory, no clock. BoundStep: WalkStep, or derived from it.
//
// Use: start(), set_block() for every step that is no signal, begin(). Only start() allocates, and it keeps the
// capacity of the walk before.
template <typename BoundStep>
class Walk {
 public:
  void start(const Plan& plan, const Slicing& slicing) {
    slicing_ = slicing;
    rounds_ = 0;
    barriers_a_round_ = 0;
    steps_.resize(plan.steps.size());
    for (size_t i = 0; i < steps_.size(); ++i) bind(plan, plan.steps[i], steps_[i]);
  }

  // Says how many elements the block of a step has.
  void set_block(BoundStep& step, uint64_t count) {
    step.count = count;
    need_rounds(std::max<uint64_t>(slicing_.rounds(count), step.counted ? 1 : 0));
  }

  // A walk has as many rounds as its longest block. Ranks that wait in each round must have as many rounds as those
  // that signal, though their own blocks may be shorter or empty: the caller passes the rounds of the longest block
  // of any rank.
  void need_rounds(uint64_t rounds) { rounds_ = std::max(rounds_, rounds); }

  // To the first slice; again and again. barriers: those that the walks before passed.
  void begin(uint64_t barriers = 0) {
    first_barrier_ = barriers;
    round_number_ = 0;
    sent_ = 0;
    posted_ = combined_ = first_cursor();
    enter_step();
  }

  std::vector<BoundStep>& steps() { return steps_; }
  const BoundStep& step_at(const Cursor& cursor) const { return steps_[cursor.step]; }

  // The next slice to post, to combine; how many are sent.
  const Cursor& posted() const { return posted_; }
  const Cursor& combined() const { return combined_; }
  uint64_t sent() const { return sent_; }
  bool done() const { return combined_.at_end && sent_ == combined_.number; }

  void pass_posted() { advance(posted_); }
  // A slice is combined after its landings are posted. Whether it has arrived is the caller's to know.
  bool may_combine() const { return !combined_.at_end && combined_.number != posted_.number; }
  void pass_combined() {
    const uint64_t round = combined_.round;
    advance(combined_);
    if (combined_.round != round) round_number_ = combined_.number;
    if (combined_.slice == 0) enter_step();
  }
  // The first `number` slices are sent: no link reads their memory any more. Never goes back, never passes
  // combined().
  void set_sent(uint64_t number) { sent_ = number; }

  // Whether the slice at `cursor`, which is combined() or further, may write its targets in memory:
  // the slice of step `after` that last uses the memory is combined and sent. Scratch of the round
  // before is free when that round is sent. Rounds touch disjoint parts of input and output, so
  // only scratch ties one round to the next. A slice of a later round than combined() waits if its
  // step has an `after`, since first_number of that step is still of the current round.
  bool may_write(const Cursor& cursor) const {
    const BoundStep& step = steps_[cursor.step];
    if (!step.writes) return true;
    if (cursor.round != combined_.round) return step.after == kNoStep && !step.writes_scratch;
    if (step.writes_scratch && sent_ < round_number_) return false;
    if (step.after == kNoStep) return true;
    // Step `after` uses the same block (check_overwriting()), so it has a slice of the same number in this round.
    if (combined_.step < step.after) return false;
    return sent_ > steps_[step.after].first_number + cursor.slice;
  }

  // Elements of the slice at `cursor`, relative to its block. Requires a step with data: a signal has no block.
  Extent span_of(const Cursor& cursor) const {
    const Extent piece = slicing_.piece(steps_[cursor.step].count, cursor.round);
    const uint64_t begin = cursor.slice * slicing_.slice;
    return {piece.offset + begin, std::min(slicing_.slice, piece.count - begin)};
  }

  // --- Barriers. Every rank shows one number, which only grows: the last barrier at which it has arrived.
  bool has_barriers() const { return barriers_a_round_ > 0; }
  // The barrier at `cursor`, whose step is part of one.
  uint64_t barrier_number(const Cursor& cursor) const {
    return first_barrier_ + cursor.round * barriers_a_round_ + steps_[cursor.step].barrier;
  }
  // The last of this walk. No rank arrives at a later one before this rank has begun the walk after this one.
  uint64_t last_barrier() const { return first_barrier_ + rounds_ * barriers_a_round_; }

  // --- For a further counter, as the verifier's machine has for sending.
  Cursor first_cursor() const {
    Cursor cursor;
    cursor.at_end = steps_.empty() || rounds_ == 0;
    if (!cursor.at_end) settle(cursor);
    return cursor;
  }
  void advance(Cursor& cursor) const {
    ++cursor.number;
    if (++cursor.slice < cursor.slices) return;
    cursor.slice = 0;
    ++cursor.step;
    settle(cursor);
  }
  // Number of the first slice of the round that combined() is in.
  uint64_t round_number() const { return round_number_; }

 private:
  void bind(const Plan& plan, const Step& step, BoundStep& bound) {
    bound = BoundStep{};
    bound.after = step.after;
    bound.barrier = step.barrier;
    bound.each_round = (step.flags & kEachRound) != 0;
    barriers_a_round_ = std::max(barriers_a_round_, step.barrier);
    const Ref* refs = plan.refs.data() + step.first;
    for (uint32_t i = 0; i < uint32_t{step.sources} + step.targets; ++i) {
      const Ref& ref = refs[i];
      if (is_remote(ref)) continue;
      if (bound.memory == nullptr) bound.memory = &ref;
      bound.writes |= i >= step.sources;
      bound.writes_scratch |= i >= step.sources && ref.space == Space::kScratch;
    }
    bound.lands = bound.writes && step.sources == 1 && refs[0].space == Space::kMailbox;
    if (bound.signal()) need_rounds(1);
  }

  // Both ends of a link must count alike, or one waits for ever: the count depends on the block's length, the round
  // and the step's flags, which both ends know.
  uint32_t slices_at(const Cursor& cursor) const {
    const BoundStep& step = steps_[cursor.step];
    if (step.signal()) return cursor.round == 0 || step.each_round ? 1 : 0;
    const uint64_t count = slicing_.piece(step.count, cursor.round).count;
    if (count == 0) return step.counted && cursor.round == 0 ? 1 : 0;
    return slicing_.slices(count);
  }

  // Skips steps that have no slice in this round, into the next rounds and to the end. The cursor then is at a slice
  // that exists, or at_end.
  void settle(Cursor& cursor) const {
    while (true) {
      if (cursor.step == steps_.size()) {
        cursor.step = 0;
        if (++cursor.round >= rounds_) {
          cursor.at_end = true;
          return;
        }
      }
      cursor.slices = slices_at(cursor);
      if (cursor.slices > 0) return;
      ++cursor.step;
    }
  }

  // Notes where a step begins in the numbering of slices, which may_write() compares with sent().
  void enter_step() {
    if (!combined_.at_end) steps_[combined_.step].first_number = combined_.number;
  }

  // The state of one walk. steps_ point into the plan's refs, so the plan must outlive the walk.
  Slicing slicing_;
  uint64_t rounds_ = 0;
  uint16_t barriers_a_round_ = 0;
  uint64_t first_barrier_ = 0;
  std::vector<BoundStep> steps_;
  Cursor posted_, combined_;
  uint64_t round_number_ = 0;
  uint64_t sent_ = 0;
};

}  // namespace rondo
