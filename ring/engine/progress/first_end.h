#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "ring/engine/progress/operation.h"

namespace rondo {

// Says that one of several operations has ended, to a thread that waits for that. Shared with their functions.
class FirstEnd {
 public:
  void tell() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_one();
  }
  // True: one has ended.
  bool wait(Clock::time_point until) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, until, [this] { return ended_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
};

// The function of on_end() that tells it. A program may wait in vain very often: an operation drops those of waits that
// are over when it gets another.
struct TellFirstEnd {
  std::weak_ptr<FirstEnd> first;
  void operator()(const Error&) const {
    if (const auto waiting = first.lock()) waiting->tell();
  }
};

}  // namespace rondo
