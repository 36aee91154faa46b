#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "ring/engine/progress/wait_policy.h"

namespace rondo {

// What a thread that polls does next: when it looks at the clock, gives its core away, and falls asleep.
//
// Ranks may share a core by chance, even where each could have one of its own: then the one that is waited for runs
// only while the other does not. So after some 2 us of vain polls a thread yields. A yield that comes back at once has
// found nobody; the next one comes when the thread has polled in vain for twice as long, so that polling goes on nearly
// all the time. Where there are more ranks than cores, each vain poll ends in a yield. Yields that cost too much
// (YieldBackoff) give way to sleeps there, and elsewhere to polling for the whole time. Pure logic; one thread at a
// time.
class VainPolls {
 public:
  using Clock = YieldBackoff::Clock;

  explicit VainPolls(WaitPolicy policy) : policy_(policy), passes_per_look_(policy.crowded ? 1 : kMostPassesPerLook) {}

  // A wait begins.
  void begin() { passes_ = 0; }
  // A pass has moved something. True: right after a yield in which another thread ran on this core.
  bool moved() {
    passes_ = 0;
    return std::exchange(shared_, false);
  }
  // A pass has moved nothing. True: next() is to be asked.
  bool vain() { return ++passes_ % passes_per_look_ == 0; }

  enum class Next : uint8_t { kPoll, kYield, kSleep };
  Next next(Clock::time_point now) {
    shared_ = false;
    if (passes_ == passes_per_look_) {
      since_ = now;
      yield_at_ = policy_.crowded ? Clock::duration{0} : kFirstYield;
    } else if (!policy_.crowded && looked_ != Clock::time_point{}) {
      keep_rhythm(now - looked_);
    }
    looked_ = now;
    const Clock::duration vain = now - since_;
    if (vain >= policy_.spin) return Next::kSleep;
    if (vain < yield_at_) return Next::kPoll;
    if (!backoff_.sleep_instead(now)) return Next::kYield;
    // A sleep takes longer than another rank's answer: each of two ranks would sleep for the other.
    return policy_.crowded ? Next::kSleep : Next::kPoll;
  }
  void yielded(Clock::time_point from, Clock::time_point to) {
    backoff_.yielded(from, to);
    looked_ = to;
    if (policy_.crowded) return;
    shared_ = to - from >= kShared;
    yield_at_ = shared_ ? to - since_ + kFirstYield : 2 * (from - since_);
  }
  void slept() {
    backoff_.slept();
    looked_ = {};
  }

 private:
  // A look at the clock costs as much as a poll of shared memory (20 to 30 ns), so it is taken once in N passes: about
  // once in a microsecond. A pass over sockets takes as long by itself.
  static constexpr uint32_t kMostPassesPerLook = 32;
  static constexpr std::chrono::nanoseconds kShortestLook{500}, kLongestLook{2000};
  // After the first look, and so after some 2 us (docs/tuning.md, "Waiting").
  static constexpr std::chrono::nanoseconds kFirstYield{1000};
  // A yield that finds nobody takes 0.3 us; another rank that polls takes its 2 us of the core.
  static constexpr std::chrono::nanoseconds kShared{1500};

  void keep_rhythm(Clock::duration since_last) {
    const uint32_t before = passes_per_look_;
    if (since_last > kLongestLook) passes_per_look_ = std::max(1u, before / 2);
    if (since_last < kShortestLook) passes_per_look_ = std::min(kMostPassesPerLook, 2 * before);
    // Not to be taken for the first look.
    if (passes_per_look_ != before) passes_ = 2 * passes_per_look_;
  }

  WaitPolicy policy_;
  YieldBackoff backoff_;
  uint32_t passes_per_look_;
  uint32_t passes_ = 0;          // vain ones in a row
  Clock::time_point since_{};    // the first look among them
  Clock::time_point looked_{};   // the last one, or the end of a yield; zero: before a sleep
  Clock::duration yield_at_{0};  // after since_
  bool shared_ = false;          // in the last yield another thread ran here
};

}  // namespace rondo
