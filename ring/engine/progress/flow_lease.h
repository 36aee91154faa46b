#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "ring/engine/progress/hand_over.h"
#include "transport/doorbell.h"

namespace rondo {

// The longest sleep of a thread that waits: deadlines and stalls are noticed within it. A wake-up costs some 5 us, so
// that 50 a second are nothing.
inline constexpr std::chrono::milliseconds kLongestSleep{20};

// The lease of a flow: one thread at a time has it and moves the flow. Others that need it sleep until it is free, or
// ask its holder for something. Any thread, unless said otherwise.
class FlowLease {
 public:
  // What a thread asks the holder to do; on that thread's stack.
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
  // Sleeps until the lease is free or done(), or until then. Its holder is rung: it may sleep, and not know what this
  // thread waits for.
  template <typename Done>
  void sleep(std::chrono::steady_clock::time_point until, Done done) {
    bell_.ring();
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    changed_.wait_until(lock, until, [&] { return done() || !state_.held(); });
    sleepers_.fetch_sub(1);
  }
  // What they sleep for may have come. Sleepers count themselves, then look; this side changes what they look at, then
  // reads the count.
  void wake_sleepers() {
    if (sleepers_.load() != 0) wake_all();
  }

  // The holder runs it in its next pass; one that gives the lease back first leaves it to the thread that asks.
  void post(Task& task);
  // Sequentially consistent: this may be the last look before a sleep, for which a bell was armed.
  bool has_tasks() const { return tasks_.load() != nullptr; }
  // Under the lease. A task may be gone as soon as it is done.
  void run_tasks();

 private:
  void wake_all();

  Doorbell& bell_;
  FlowState state_;
  std::mutex mutex_;  // of the sleep
  std::condition_variable changed_;
  std::atomic<int> sleepers_{0};
  std::atomic<Task*> tasks_{nullptr};  // newest first
};

}  // namespace rondo
