#pragma once

#include <algorithm>
#include <chrono>

namespace rondo {

// How a driver that finds nothing to do waits.
struct Patience {
  std::chrono::microseconds spin{0};  // polls so long before it sleeps
  bool yields = false;                // gives the core away between polls: there are more ranks than cores
  int home = -1;                      // place among the ranks of the host, if each can have a core of its own
};

// Whether giving the core away pays. Beside another rank that waits, too, a yield lasts a microsecond; beside a process
// that computes it lasts that one's turn (3 ms and more), while a sleeper is woken at once. So after a dear yield there
// are no yields for as long as it lasted, and for eight times as long each time that one follows soon: a rank that
// computes once (at the start, say) costs its waiters a few milliseconds of sleeps, which are dearer than cheap yields
// by far (8 ranks on 2 cores: 240 us an all_reduce of 8 bytes instead of 13), and one that always does costs them a
// yield now and then. One thread at a time.
class DearYields {
 public:
  using Clock = std::chrono::steady_clock;

  // Longer than another rank's pass over slices of the default size, shorter than the turn that the scheduler gives.
  static constexpr std::chrono::milliseconds kDear{2};
  static constexpr std::chrono::milliseconds kLongest{400};  // without yields

  void yielded(Clock::time_point from, Clock::time_point to) {
    const Clock::duration lasted = to - from;
    if (lasted < kDear) return;
    const bool again = from - without_until_ < kSoon * without_;
    without_ = std::min<Clock::duration>(again ? kMore * without_ : lasted, kLongest);
    without_until_ = to + without_;
  }
  // No yields now.
  bool sleep_instead(Clock::time_point now) const { return now < without_until_; }

 private:
  static constexpr int kMore = 8;
  static constexpr int kSoon = 8;  // times the last pause

  Clock::duration without_{0};
  Clock::time_point without_until_{};
};

}  // namespace rondo
