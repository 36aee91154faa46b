#pragma once

#include <atomic>
#include <chrono>
#include <mutex>

#include "ring/engine/progress/operation.h"

namespace rondo {

// The clock of calls' deadlines. It stands still while the process does (SIGSTOP, a frozen control group, a debugger):
// that is no fault of a rank. At first it shows what Clock does. Any thread.
class RunningClock {
 public:
  // What two looks may lie apart: threads look each 20 ms, or after 256 passes of up to a millisecond, and beside many
  // other ranks a core comes late. More than that counts as that.
  static constexpr std::chrono::milliseconds kLongestGap{300};

  explicit RunningClock(Clock::time_point now = Clock::now()) : seen_(now) {}

  // What it shows at `now`. Called all the time while calls are under way.
  Clock::time_point look(Clock::time_point now) {
    Clock::time_point seen = seen_.load(std::memory_order_acquire);
    if (now - seen > kLongestGap) {
      stood_still(now);
    } else if (now > seen) {
      seen_.compare_exchange_strong(seen, now, std::memory_order_acq_rel);  // else another thread has looked
    }
    return now - still_.load(std::memory_order_relaxed);
  }

 private:
  void stood_still(Clock::time_point now) {
    std::lock_guard lock(mutex_);
    const Clock::duration gap = now - seen_.load(std::memory_order_relaxed);
    if (gap <= kLongestGap) return;
    still_.store(still_.load(std::memory_order_relaxed) + gap - kLongestGap, std::memory_order_relaxed);
    seen_.store(now, std::memory_order_release);  // who sees this in look() has still_
  }

  std::atomic<Clock::time_point> seen_;  // the last look
  std::atomic<Clock::duration> still_{Clock::duration{0}};
  std::mutex mutex_;  // of its growing
};

}  // namespace rondo
