#pragma once

#include <atomic>
#include <mutex>

#include "ring/base/error.h"

namespace rondo {

// Why a communicator is over: the first reason wins. Any thread.
class Failure {
 public:
  // True if this was the first.
  bool set(const Error& error) {
    std::lock_guard lock(mutex_);
    if (failed_.load(std::memory_order_relaxed)) return false;
    error_ = error;
    failed_.store(true, std::memory_order_release);
    return true;
  }
  // nullptr while there is none; then the same for ever.
  const Error* get() const { return failed_.load(std::memory_order_acquire) ? &error_ : nullptr; }

 private:
  std::mutex mutex_;
  std::atomic<bool> failed_{false};
  Error error_;
};

}  // namespace rondo
