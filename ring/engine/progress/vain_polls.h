#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace rondo {

// Between two polls: gives the core's execution units to its other hardware thread.
inline void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // a pause of some ten cycles; YIELD takes none on most cores
#endif
}

// How a thread waits that finds nothing to move.
struct WaitPolicy {
  // Polls so long before it sleeps. The usual 200 us are longer than a wake-up (30 us) and shorter than a burst of
  // communication (docs/tuning.md, "Waiting").
  std::chrono::microseconds spin{0};
  bool crowded = false;  // there are more ranks than cores
  int home = -1;         // place among the ranks of the host; -1: this thread need not be spread with the others'
};

// Whether giving the core away pays. Beside another rank that waits, a yield lasts a microsecond. Beside a
// process that computes, it lasts that one's turn: 3 ms and more. A sleeper is woken at once in both cases.
//
// So after a dear yield comes a pause without yields. It ends after a time, or after a number of sleeps,
// whichever is first. The first pause is short. Each dear yield that follows soon makes the next one eight
// times as long. Ranks that compute for a while, at the start for example, then cost their waiters a few
// milliseconds of sleeps: sleeps are far dearer than cheap yields (8 ranks on 2 cores: 240 us an all_reduce of
// 8 bytes instead of 13). A process that always computes costs them one yield now and then. One thread at a
// time.
class YieldBackoff {
 public:
  using Clock = std::chrono::steady_clock;

  // A yield that lasts so long is dear. That is longer than another rank's pass over slices of the default
  // size, and shorter than the turn that the scheduler gives a process.
  static constexpr std::chrono::milliseconds kDear{2};
  // Pauses: the first is as long as the yield was, or 16 sleeps, which take about as long. The longest makes
  // yields 2 % of the time.
  static constexpr int kFewestSleeps = 16, kMostSleeps = 2048;
  static constexpr std::chrono::milliseconds kLongest{400};

  void yielded(Clock::time_point from, Clock::time_point to) {
    const Clock::duration lasted = to - from;
    if (lasted < kDear) return;
    const bool again = from - until_ < kSoon * pause_;
    pause_ = std::min<Clock::duration>(again ? kMore * pause_ : lasted, kLongest);
    sleeps_ = again ? std::min(kMore * sleeps_, kMostSleeps) : kFewestSleeps;
    until_ = to + pause_;
    sleeps_left_ = sleeps_;
  }
  void slept() { sleeps_left_ = std::max(0, sleeps_left_ - 1); }
  // No yields now.
  bool sleep_instead(Clock::time_point now) const { return sleeps_left_ > 0 && now < until_; }

 private:
  static constexpr int kMore = 8;
  static constexpr int kSoon = 8;  // times the last pause

  Clock::duration pause_{0};
  int sleeps_ = 0;
  Clock::time_point until_{};
  int sleeps_left_ = 0;
};

// What a thread that polls in vain does next: looks at the clock, yields its core, or falls asleep.
//
// Ranks may share a core by chance, even where each could have its own. Then the awaited rank runs only while
// this one does not. So after some 2 us of vain polls a thread yields. A yield that returns at once has found
// nobody. The next one comes when the thread has polled in vain for twice as long, so nearly all of the time is
// polling. With more ranks than cores, each vain poll ends in a yield. Where yields cost too much
// (YieldBackoff), such a thread sleeps instead; with a core for each rank it polls on. Pure logic; one thread
// at a time.
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
  // A look at the clock costs as much as a poll of shared memory, 20 to 30 ns. So it is taken once in some
  // passes: about once in a microsecond. A pass over sockets takes that long by itself.
  static constexpr uint32_t kMostPassesPerLook = 32;
  static constexpr std::chrono::nanoseconds kShortestLook{500}, kLongestLook{2000};
  // The first yield comes at the second look, so after some 2 us (docs/tuning.md, "Waiting").
  static constexpr std::chrono::nanoseconds kFirstYield{1000};
  // A longer yield has found another thread. One that finds nobody takes 0.3 us; a rank that polls keeps the
  // core for its 2 us.
  static constexpr std::chrono::nanoseconds kShared{1500};

  // Doubles or halves the passes for each look, so that looks lie 0.5 to 2 us apart whatever a pass costs.
  void keep_rhythm(Clock::duration since_last) {
    const uint32_t before = passes_per_look_;
    if (since_last > kLongestLook) passes_per_look_ = std::max(1u, before / 2);
    if (since_last < kShortestLook) passes_per_look_ = std::min(kMostPassesPerLook, 2 * before);
    // So that next() does not take this for the first look of the wait.
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
