#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "ring/engine/progress/hand_over.h"
#include "transport/doorbell.h"

namespace rondo {

// The longest sleep of a thread that waits: deadlines and stalls are noticed within it. A wake-up costs some 5
// us, so 50 a second cost nothing that is seen.
inline constexpr std::chrono::milliseconds kLongestSleep{20};

// The lease of a flow: one thread at a time has it, and moves the flow. Another thread that needs it sleeps
// until it is free, or posts a task to its holder. Any thread, unless a comment says otherwise. The flow owns
// it.
class FlowLease {
 public:
  // Something that a thread asks the holder to do. It lies on the stack of the thread that asks, which waits
  // for `done`.
  struct Task {
    virtual void run() = 0;
    std::atomic<bool> done{false};
    Task* next = nullptr;

   protected:
    ~Task() = default;
  };

  // bell: the flow's, which outlives this.
  explicit FlowLease(Doorbell& bell) : bell_(bell) {}

  FlowState& state() { return state_; }
  const FlowState& state() const { return state_; }

  void acquire();
  // Sleeps until the lease is free, until done(), or until then. It rings the doorbell first: the holder may be
  // asleep, and does not know what this thread waits for.
  template <typename Done>
  void sleep(std::chrono::steady_clock::time_point until, Done done) {
    bell_.ring();
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    changed_.wait_until(lock, until, [&] { return done() || !state_.held(); });
    sleepers_.fetch_sub(1);
  }
  // Wakes threads in sleep() if there are any. A sleeper counts itself, then tests its condition. This side has
  // changed the condition, and then loads the count. Both are sequentially consistent, so one sees the other.
  void wake_sleepers() {
    if (sleepers_.load() != 0) wake_all();
  }

  // The holder runs the task in its next pass. A holder that gives the lease back without a pass leaves it to
  // the thread that asks (Flow::await).
  void post(Task& task);
  // Sequentially consistent: this may be the last look before a sleep for which a doorbell was armed.
  bool has_tasks() const { return tasks_.load() != nullptr; }
  // Under the lease. A task may be gone as soon as its `done` is set.
  void run_tasks();

 private:
  void wake_all();

  Doorbell& bell_;
  FlowState state_;
  std::mutex mutex_;  // of changed_
  std::condition_variable changed_;
  std::atomic<int> sleepers_{0};
  std::atomic<Task*> tasks_{nullptr};  // newest first
};

}  // namespace rondo
