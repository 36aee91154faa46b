#pragma once

#include <algorithm>
#include <chrono>

namespace rondo {

// Between two polls, for the other thread of the core.
inline void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // a pause of some ten cycles; YIELD takes none on most cores
#endif
}

// How an engine that finds nothing to do waits.
struct WaitPolicy {
  // Polls so long before it sleeps. The usual 200 us are longer than a wake-up (30 us) and shorter than a burst of
  // communication (docs/tuning.md, "Waiting").
  std::chrono::microseconds spin{0};
  bool crowded = false;  // there are more ranks than cores
  int home = -1;         // place among the ranks of the host; -1: this thread need not be spread with the others'
};

// Whether giving the core away pays. Beside another rank that waits, too, a yield lasts a microsecond; beside a process
// that computes it lasts that one's turn (3 ms and more), while a sleeper is woken at once. So after a dear yield comes
// a pause without yields: it ends after a time or after a number of sleeps, whichever is first. It is short,
// and eight times as long each time that a dear yield follows soon: ranks that compute for a while (at the start, say)
// cost their waiters some milliseconds of sleeps, which are dearer than cheap yields by far (8 ranks on 2 cores: 240 us
// an all_reduce of 8 bytes instead of 13), and a process that always computes costs them a yield now and then. One
// thread at a time.
class YieldBackoff {
 public:
  using Clock = std::chrono::steady_clock;

  // Longer than another rank's pass over slices of the default size, shorter than the turn that the scheduler gives.
  static constexpr std::chrono::milliseconds kDear{2};
  // Pauses: the first is as long as the yield was, or 16 sleeps, which is about as long; the longest make yields 2 % of
  // the time.
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

}  // namespace rondo
