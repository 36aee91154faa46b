#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace asio {
class io_context;
}

namespace rondo {

// A time at which the I/O thread does something. On that thread, but for construction.
class IoTimer {
 public:
  using Clock = std::chrono::steady_clock;
  explicit IoTimer(asio::io_context& io);
  ~IoTimer();  // what it was set for is dropped

  // `work` is called at that time, instead of what it was set for before. It may destroy the timer.
  void set(Clock::time_point when, std::function<void()> work);
  void cancel();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
