#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "ring/engine/progress/end_functions.h"
#include "ring/engine/progress/flow.h"

namespace rondo {

// The clock of the calls' deadlines. It stands still while the process does (SIGSTOP, a frozen control group, a
// debugger): a rank that was stopped must not blame the others when it goes on. Until the first stop it shows
// the time of Clock. Any thread.
class RunningClock {
 public:
  // The longest time between two looks of a process that runs; of a longer gap only so much is counted. Threads
  // look every 20 ms, or after 256 passes of up to a millisecond, and with many other ranks beside it a thread
  // gets its core late.
  static constexpr std::chrono::milliseconds kLongestGap{300};

  explicit RunningClock(Clock::time_point now = Clock::now()) : seen_(now) {}

  // What it shows at `now`. Must be called all the time while calls are under way, or their time stands still.
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
    seen_.store(now, std::memory_order_release);  // a look() that acquires this has the new still_
  }

  std::atomic<Clock::time_point> seen_;                     // the last look
  std::atomic<Clock::duration> still_{Clock::duration{0}};  // the sum of the stops
  std::mutex mutex_;  // of stood_still(): two threads that wake at once count one stop
};

// Knows the flows of a join that have something under way, and makes sure that some thread moves them. One a
// join. The rule of progress:
// - A thread that waits moves its own flow. With the watch (watch.h) it moves all the others, too.
// - Where no thread waits, the worker's own thread takes the watch, like a waiter without an operation.
// - Calls that do not wait make a pass over the other flows.
// - While the caller's threads make passes over all flows (attention), the worker's thread only looks now and
//   then whether they still do, and is not rung. It sleeps until it is rung while nothing is under way, or
//   while a thread sleeps with the watch.
//
// The worker's thread also calls the functions of Work::on_end(). The communicators of the join share the
// worker; its thread ends with the last of them, while flows and operations may live on.
class Worker : public std::enable_shared_from_this<Worker> {
 public:
  Worker(WaitPolicy policy, std::shared_ptr<Sleepers> sleepers);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  // For the communicators of a join, which share what it returns: the thread ends when the last of them lets
  // go. Flows have references of another kind (shared_from_this), which keep the object but not its thread.
  static std::shared_ptr<Worker> make(WaitPolicy policy, std::shared_ptr<Sleepers> sleepers);

  // Starts the thread, unless it runs. Must come before the submission of anything that is left to it. Throws
  // Exception(kSystem). Any thread.
  void start();
  bool started() const { return started_.load(std::memory_order_acquire); }
  // The thread ends, or has ended. Functions of on_end() then run where the operation ends.
  bool stopping() const { return stopping_.load(); }

  // The clock of all deadlines of the join's operations.
  RunningClock& clock() { return clock_; }

  // Puts the flow into the list: something is under way there that no thread may be waiting for. Without memory
  // for that the flow's communicator fails.
  void list(Flow& flow) noexcept;
  // Some of a listed flow can go on at once, and no peer rings for it. Wakes the thread with the watch, else
  // the worker's own.
  void take_over() noexcept;
  // A flow is listed.
  bool busy() const { return listed_.load() > 0; }
  // A flow is listed beside this one.
  bool busy_beside(const Flow& own) const {
    const uint32_t listed = listed_.load(std::memory_order_relaxed);
    return listed > 1 || (listed == 1 && !own.state().listed(std::memory_order_relaxed));
  }
  // A thread of the caller's has made a pass over all that is under way. A count that two threads lose does no
  // harm: the worker's thread only asks whether it grows.
  void attended() { attention_.store(attention_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  // A flow's lease is free again, and a sleeper may not be rung for that flow: wakes the thread with the watch,
  // or the worker's own.
  void look_again();
  // Something is under way in a listed flow. If no thread looks after it, wakes the worker's own.
  void wake_if_left();
  // The flow gets messages, unexpected ones among them: messages that no receive waits for. A rank that waits
  // for long reads them. Otherwise two ranks could wait for each other: the awaited peer may itself wait until
  // its message is read.
  void add_inbox(const std::shared_ptr<Flow>& flow);
  // A pass of each such flow but one (null: of all), where its lease is free. True if anything moved.
  bool read_inboxes(const Flow* but);
  // Work::done() or a probe has found nothing: reads the inboxes now and then, the one of its own flow, too. A
  // pass looks only at streams that an operation waits for, and a program that only polls would never read the
  // others. Without a lease.
  void found_nothing();
  // The flow's communicator has been destroyed: takes the flow out of all lists.
  void forget(const Flow& flow);

  // Runs the function soon on the thread, with no lock held, in the order of these calls; after the thread's
  // end at once, here. Requires start(). Any thread.
  void call(std::unique_ptr<EndCall> call) noexcept;
  // Waits until the functions that call() had got before have run. Not in such a function.
  void finish_calls() { end_functions_.wait(); }

  // How long the thread stays aside between two looks: 250 us at first, then four times as long each time,
  // since a look takes the caller's core for some 25 us. At the longest, 333 looks a second.
  static constexpr std::chrono::microseconds kAside{250}, kLongestAside{3000};

 private:
  friend class Watch;
  // How often the caller's threads make passes over all that is under way.
  enum class Attention : uint8_t {
    kNone,
    kSeldom,  // the thread looks now and then, and goes on while something moves; it is not rung
    kOften    // the thread would only take their core
  };

  void stop() noexcept;
  void run();
  Attention attention(Clock::time_point now);
  void turn(Watch& watch, VainPolls& polls);
  void stand_aside();
  bool needed();
  void drop_idle();
  void close();
  void fail_all(const Error& error);
  std::vector<std::shared_ptr<Flow>> flows();
  bool called_for();

  const WaitPolicy policy_;
  const int pid_;  // of the process that made it: a forked child has no such thread
  RunningClock clock_;
  const std::shared_ptr<Sleepers> sleepers_;  // the fabric's
  Doorbell bell_{sleepers_};                  // of the thread
  Doorbell watch_bell_{sleepers_};            // of a sleeper with the watch
  WatchState watch_;
  std::atomic<uint32_t> attention_{0};  // passes
  std::atomic<uint32_t> listed_{0};     // as many as flows_
  std::atomic<uint32_t> version_{0};    // of flows_
  std::atomic<uint32_t> vain_calls_{0};
  std::atomic<bool> asked_{false};  // take_over()
  std::atomic<bool> started_{false}, stopping_{false};

  // Only the worker's thread reads and writes these.
  Attention paid_ = Attention::kNone;
  Clock::time_point looked_at_{};  // when it last looked at the attention
  uint32_t looked_passes_ = 0;     // attention_ then
  int idle_looks_ = 0;             // in a row, at which it was not needed
  std::chrono::microseconds aside_ = kAside;
  bool moved_ = false, moved_before_ = false;  // in this look, in the one before; both: a long transfer

  EndFunctions end_functions_;
  std::mutex mutex_;                          // of what follows, and of the thread's start
  std::vector<std::shared_ptr<Flow>> flows_;  // shared: an operation under way outlives its communicator's handle
  std::vector<std::weak_ptr<Flow>> inboxes_;
  std::thread thread_;
  bool over_ = false;  // there is no thread any more, and none starts
};

}  // namespace rondo
