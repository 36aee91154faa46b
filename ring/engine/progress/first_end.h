#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "ring/engine/progress/operation.h"

namespace rondo {

// Says to a thread in wait_any() that one of several operations has ended. The waiting thread owns it; the
// operations' functions have weak references, so a function that comes late finds nothing.
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

// The function of on_end() that says it. Operation knows this type: it drops those whose waits are over, since
// a program may call wait_any() very often on an operation that does not end.
struct TellFirstEnd {
  std::weak_ptr<FirstEnd> first;
  void operator()(const Error&) const {
    if (const auto waiting = first.lock()) waiting->tell();
  }
};

}  // namespace rondo
