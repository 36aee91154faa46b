#include "ring/engine/run/lane_crew.h"

#include <sched.h>

#include "ring/base/check.h"
#include "ring/base/own_thread.h"
#include "rondo/error.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

// A look at the clock costs as much as some vain passes over a lane.
constexpr uint32_t kPassesPerLook = 32;

}  // namespace

LaneCrew::LaneCrew(uint32_t lanes, uint32_t threads, WaitPolicy policy, std::shared_ptr<Doorbell> bell)
    : policy_(policy), bell_(std::move(bell)), slots_(lanes) {
  RONDO_CHECK(threads > 0 && threads < lanes, "a crew has a helper at least, and the engine a lane of its own");
  threads_.resize(threads);  // before they start: who owns a lane follows from it
  try {
    for (uint32_t i = 0; i < threads; ++i) {
      threads_[i] = start_own_thread("rondo-lane", [this, i] { help(i + 1); });
    }
  } catch (const Exception& failure) {
    stop();
    throw Exception(failure.code(), failure.error().message + " (RONDO_LANE_THREADS=0 does without)");
  }
}

LaneCrew::~LaneCrew() { stop(); }

void LaneCrew::stop() {
  stopping_.store(true);
  call_helpers();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void LaneCrew::begin(std::span<LaneRun> lanes) {
  RONDO_CHECK(count_ == 0 && lanes.size() <= slots_.size(),
              "one operation at a time, of at most as many lanes as slots");
  hold_all();
  count_ = static_cast<uint32_t>(lanes.size());
  for (uint32_t i = 0; i < count_; ++i) slots_[i].lane = &lanes[i];
  release_all();
  call_helpers();
}

void LaneCrew::end() {
  if (count_ == 0) return;
  hold_all();
  for (Slot& slot : slots_) {
    slot.lane = nullptr;
    slot.thrown = nullptr;
  }
  count_ = 0;
  release_all();
}

LaneCrew::Progress LaneCrew::pass(LaneRun::Landing landing) {
  Progress progress;
  bool call = false, held = false;
  for (uint32_t i = 0; i < count_; ++i) {
    Slot& slot = slots_[i];
    if (!try_hold(slot)) {
      held = true;
      continue;
    }
    const std::exception_ptr thrown = slot.thrown;
    bool moved = false;
    try {
      if (!thrown && !slot.lane->done()) moved = slot.lane->progress(landing);
    } catch (...) {
      release(slot);
      throw;
    }
    progress.done &= slot.lane->done();
    release(slot);
    if (thrown) std::rethrow_exception(thrown);
    progress.moved |= moved;
    call |= moved && owner_of(i) != 0;
  }
  // A lane that has begun to move again is its helper's, if that one sleeps.
  if (call && asleep_.load() > 0) call_helpers();
  if (held) {
    progress.done = false;
    // Its holder may need this core for that.
    if (!progress.moved) policy_.crowded ? static_cast<void>(sched_yield()) : pause_core();
    progress.moved = true;
  }
  return progress;
}

void LaneCrew::call_helpers() {
  calls_.fetch_add(1);
  calls_.notify_all();
}

// The life of a helper's thread.
void LaneCrew::help(uint32_t helper) {
  for (uint32_t heard = 0; !stopping_.load(); heard = calls_.load()) {
    work(helper);
    asleep_.fetch_add(1);
    calls_.wait(heard);
    asleep_.fetch_sub(1);
  }
}

// Until its lanes have ended, or nothing has moved for the usual time.
void LaneCrew::work(uint32_t helper) {
  Clock::time_point idle_since{};
  for (uint32_t idle = 0; !stopping_.load(std::memory_order_relaxed);) {
    bool left = false;
    if (move_own(helper, left)) {
      idle = 0;
      continue;
    }
    if (!left) return;
    if (++idle % kPassesPerLook != 0) {
      pause_core();
      continue;
    }
    const Clock::time_point now = Clock::now();
    if (idle == kPassesPerLook) idle_since = now;
    if (now - idle_since >= policy_.spin) return;
    if (policy_.crowded) sched_yield();
  }
}

// One pass over the helper's lanes. left: some are not done. True if anything moved.
bool LaneCrew::move_own(uint32_t helper, bool& left) {
  bool moved = false;
  for (uint32_t i = helper; i < slots_.size(); i += static_cast<uint32_t>(threads_.size()) + 1) {
    Slot& slot = slots_[i];
    if (!try_hold(slot)) {
      left = true;
      continue;
    }
    bool tell = false;
    if (slot.lane != nullptr && !slot.thrown && !slot.lane->done()) {
      try {
        const bool stepped = slot.lane->progress(LaneRun::Landing::kWait);
        moved |= stepped;
        // The thread that takes the last bytes takes the event, too, for which the engine may sleep.
        tell = slot.lane->done() || (!stepped && slot.lane->failed_link() >= 0);
        left |= !slot.lane->done();
      } catch (...) {
        slot.thrown = std::current_exception();
        tell = true;
      }
    }
    release(slot);
    if (tell) bell_->ring();
  }
  return moved;
}

// A pass of a helper takes as long as some slices: microseconds, unless its core was taken away.
void LaneCrew::hold_all() {
  for (Slot& slot : slots_) {
    for (uint32_t tries = 0; !try_hold(slot);) {
      if (++tries % 64 == 0) {
        sched_yield();
      } else {
        pause_core();
      }
    }
  }
}

void LaneCrew::release_all() {
  for (Slot& slot : slots_) release(slot);
}

}  // namespace rondo
