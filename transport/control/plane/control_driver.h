#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rondo/error.h"
#include "transport/control/control_logic.h"
#include "transport/control/plane/wake_event.h"
#include "transport/control/start_logic.h"
#include "transport/tcp/io_thread.h"
#include "transport/tcp/io_timer.h"

namespace rondo {

// The state machines of a rank behind one lock. Any thread tells them events; what follows is carried out on the I/O
// thread, in order and without the lock: so a communicator's events come from that thread alone, and nothing is called
// out with the lock held, but for on_broken(), which calls nothing.
class ControlDriver {
 public:
  using Clock = std::chrono::steady_clock;

  // Called on the I/O thread without the lock. They may throw.
  struct Handlers {
    std::function<void(const control::Action&)> carry_out;
    std::function<void(int peer, const ControlBody&)> send;  // StartLogic's messages
    // The ranks whose processes have ended, as far as the launcher says. Asked at each tick once a rank is lost:
    // shrink() has one every Settings::resend_ms.
    std::function<std::vector<int>()> ended;
  };
  ControlDriver(IoThread& thread, const WakeEvent& wake, Handlers handlers);

  // Makes the logic: once, before all of the following but hold(), post(), flush() and forget_actions(); behind
  // State::start, for which the I/O thread looks once there is a logic.
  void know(ControlSettings logic);
  // Any thread, no lock.
  std::string peer_name(int peer) const { return state_.logic->settings().name(peer); }
  static ControlLogic::Time now();

  // What the lock guards, with what its users say that it guards of theirs.
  struct State {
    std::optional<ControlLogic> logic;
    std::optional<StartLogic> start;  // null between threads of one process, where nothing connects
    Error broken;                     // what a handler has thrown: the end of every communicator, also of later ones
    bool descriptors_closed = false;  // by another part of the process: nothing comes, and nothing goes
  };
  // The state, locked for as long as this lives.
  class Held {
   public:
    State* operator->() const { return state_; }
    State& operator*() const { return *state_; }

   private:
    friend class ControlDriver;
    explicit Held(ControlDriver& driver) : lock_(driver.mutex_), state_(&driver.state_) {}
    std::unique_lock<std::mutex> lock_;
    State* state_;
  };
  Held hold() { return Held(*this); }

  // Waits until over(state), asked with the lock held at each change, gives true, or the deadline has passed: its last
  // answer.
  template <typename Over>
  bool wait_until(Clock::time_point deadline, const Over& over) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline, [&] { return over(state_); });
  }
  template <typename Over>
  void wait(const Over& over) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return over(state_); });
  }
  // What the lock guards has changed.
  void notify() { changed_.notify_all(); }

  // --- from a thread of the program
  template <typename Event>
  void tell_later(const Event& event) {
    {
      const Held state = hold();
      event(*state->logic);
    }
    request_flush();
  }
  // The I/O thread is to carry out what is there.
  void request_flush();
  // For the I/O thread. Throws std::bad_alloc.
  void post(std::function<void()> work) { thread_.post(std::move(work)); }
  // All actions were carried out, and their messages went to the sockets. Requires the lock.
  bool all_said() const { return state_.logic->idle() && flushes_written_ == flushes_; }

  // --- on the I/O thread
  // An event and all that follows from it.
  void tell(const std::function<void(ControlLogic&)>& event);
  void tell_start(const std::function<void(StartLogic&)>& event);
  void flush();
  // With what the other messages that have come bring about: a rank of a large world hears hundreds at once.
  void flush_soon();
  // Nobody waits for the actions to be said any more.
  void forget_actions();

 private:
  void arm_timer();

  IoThread& thread_;
  const WakeEvent& wake_;
  const Handlers handlers_;
  std::mutex mutex_;  // guards state_, but for the logic's settings, and the two numbers
  std::condition_variable changed_;
  State state_;
  uint64_t flushes_ = 0, flushes_written_ = 0;  // that had actions; whose messages went to the sockets, of these
  // The I/O thread's.
  bool flush_posted_ = false;
  IoTimer timer_;
  std::optional<ControlLogic::Time> armed_for_;  // when timer_ fires
};

}  // namespace rondo
