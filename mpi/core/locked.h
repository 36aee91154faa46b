#pragma once

#include <mutex>
#include <utility>

namespace rondo_mpi {

// What several threads of a program may set and read of one object: each call takes the lock of this value, and none
// keeps it.
template <typename T>
class Locked {
 public:
  Locked() = default;
  Locked(const Locked& other) : value_(other.get()) {}
  Locked& operator=(const Locked& other) { return *this = other.get(); }
  // The old value is destroyed by the caller, after the lock: its end may run anything.
  Locked& operator=(T value) {
    std::lock_guard lock(mutex_);
    std::swap(value_, value);
    return *this;
  }
  T get() const {
    std::lock_guard lock(mutex_);
    return value_;
  }
  // function(value), which calls nothing of the program.
  template <typename Function>
  void with(const Function& function) {
    std::lock_guard lock(mutex_);
    function(value_);
  }

 private:
  mutable std::mutex mutex_;
  T value_{};
};

}  // namespace rondo_mpi
