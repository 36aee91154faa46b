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

// The clock of calls' deadlines. It stands still while the process does (SIGSTOP, a frozen control group, a debugger):
// that is no fault of a rank. At first it shows what Clock does. Any thread.
class RunningClock {
 public:
  // What two looks may lie apart: threads look each 20 ms, or after 256 passes of up to a millisecond, and beside many
  // other ranks a core comes late. More than that counts as that.
  static constexpr std::chrono::milliseconds kLongestGap{300};

  explicit RunningClock(Clock::time_point now = Clock::now()) : seen_(now) {}

  // What it shows at `now`. Called all the time while calls are under way.
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
    seen_.store(now, std::memory_order_release);  // who sees this in look() has still_
  }

  std::atomic<Clock::time_point> seen_;  // the last look
  std::atomic<Clock::duration> still_{Clock::duration{0}};
  std::mutex mutex_;  // of its growing
};

// One a join: it knows the flows with something under way, and sees to it that they are moved.
// - A thread that waits moves its own flow, and, with the watch (below), all the others.
// - Where none waits, the worker's own thread does the same, as a waiter that waits for nothing.
// - Calls that do not wait make a pass over the other flows.
// - While the caller's threads make passes over all of them (attention), the own thread only looks now and then what
//   moves, and is not rung. It sleeps for good while nothing is under way, or while a thread sleeps with the watch.
// It also calls the functions of Work::on_end(), on its thread.
class Worker : public std::enable_shared_from_this<Worker> {
 public:
  Worker(WaitPolicy policy, std::shared_ptr<Sleepers> sleepers);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  // For the communicators of a join, which share it: its thread ends with the last of them. Flows may outlive that.
  static std::shared_ptr<Worker> make(WaitPolicy policy, std::shared_ptr<Sleepers> sleepers);

  // Starts the thread, unless it runs: before anything is submitted that is to be left to it. Throws
  // Exception(kSystem). Any thread.
  void start();
  bool started() const { return started_.load(std::memory_order_acquire); }
  // The thread ends, or has ended.
  bool stopping() const { return stopping_.load(); }

  // The deadlines of what flows do go by it.
  RunningClock& clock() { return clock_; }

  // --- by flows, any thread; none blocks
  // The flow has something under way that its thread may leave.
  void list(Flow& flow) noexcept;
  // Some of a listed flow can go on at once, and no peer rings for it.
  void take_over() noexcept;
  // A flow is listed.
  bool busy() const { return listed_.load() > 0; }
  // A flow is listed beside this one.
  bool busy_beside(const Flow& own) const;
  // A thread of the caller's has moved all that is under way.
  void attended() { attention_.store(attention_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  // A flow that a sleeper could not watch, or not any more, is free again.
  void look_again();
  // Something is under way in a listed flow, perhaps without a thread that looks after it.
  void wake_if_left();
  // The flow gets messages, unexpected ones among them: messages that no receive waits for. A rank that waits for long
  // reads them: the peer that it waits for may itself wait until its message is read.
  void add_inbox(const std::shared_ptr<Flow>& flow);
  // A pass of each such flow but one (null: of all), where its lease is free. True if anything moved.
  bool read_inboxes(const Flow* but);
  // A done() or probe() has found nothing: reads them at times. Those of its own flow, too, since its pass looks only
  // at streams that an operation waits for. Without a lease.
  void found_nothing();
  // The flow is over.
  void forget(const Flow& flow);

  // Runs it soon, on the thread, with no lock held; in the order of these calls. After the thread's end: at once, here.
  // Requires start(). Any thread.
  void call(std::unique_ptr<EndCall> call) noexcept;
  // Waits until what call() got before has been called. Not in such a function.
  void finish_calls() { end_functions_.wait(); }

  // The thread keeps aside so long at first, then four times as long each time, since a look takes the caller's core
  // for some 25 us. At the longest, 333 looks a second.
  static constexpr std::chrono::microseconds kAside{250}, kLongestAside{3000};

 private:
  friend class Watch;
  // How often the caller's threads make passes over all that is under way.
  enum class Attention : uint8_t {
    kNone,
    kSeldom,  // the thread looks now and then, and goes on while something moves; it is not rung
    kOften    // it would only be in their way
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
  const int pid_;
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

  // The thread alone reads and writes these.
  Attention paid_ = Attention::kNone;
  Clock::time_point looked_at_{};  // at the attention; then it was:
  uint32_t looked_passes_ = 0;
  int idle_looks_ = 0;
  std::chrono::microseconds aside_ = kAside;
  bool moved_ = false, moved_before_ = false;  // in this look, in the one before: what moves in both is long

  EndFunctions end_functions_;
  std::mutex mutex_;                          // of what follows, and of the thread's start
  std::vector<std::shared_ptr<Flow>> flows_;  // shared: an operation under way outlives its communicator's handle
  std::vector<std::weak_ptr<Flow>> inboxes_;
  std::thread thread_;
  bool over_ = false;  // there is no thread any more, and none starts
};

}  // namespace rondo
