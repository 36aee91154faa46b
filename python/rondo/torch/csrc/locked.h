#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <type_traits>
#include <utility>

namespace rondo_torch {

// State that several threads use, behind a lock: the only locks of this module. A tensor, a function, an exception or a
// process group that is destroyed may run code of torch and Python, which waits for Python's lock, whose holder may
// wait here. So the functions below only move and count, and what they take out they return: it ends without the lock.
template <typename State>
class Locked {
 public:
  // change(state) under the lock, and what it returns.
  template <typename Change>
  auto with(Change change) {
    std::lock_guard lock(mutex_);
    return under_lock(change);
  }
  // The same as soon as ready(state), or after `limit`. Another thread's notify_one() is what it waits for.
  template <typename Ready, typename Change>
  auto when(Ready ready, std::chrono::milliseconds limit, Change change) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [&] { return ready(state_); });
    return under_lock(change);
  }
  void notify_one() { changed_.notify_one(); }
  // Around fork(), so that no other thread has the lock then: the child would find it taken for ever.
  void hold() { mutex_.lock(); }
  void let_go() { mutex_.unlock(); }

 private:
  template <typename Change>
  auto under_lock(Change& change) {
    static_assert(!std::is_reference_v<std::invoke_result_t<Change&, State&>>, "a reference would leave the lock");
    return change(state_);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  State state_{};
};

}  // namespace rondo_torch
