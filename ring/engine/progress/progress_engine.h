#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "ring/base/caught.h"
#include "ring/engine/progress/fork_mark.h"
#include "ring/engine/progress/operation.h"
#include "ring/engine/progress/vain_polls.h"
#include "ring/engine/progress/wait_policy.h"
#include "transport/doorbell.h"

namespace rondo {

class ProgressThread;

// Why an engine makes a pass.
enum class Pass : uint8_t {
  kPolling,      // another will follow soon
  kBeforeSleep,  // if nothing moves, the engine sleeps on the (edge-triggered) doorbell: leave nothing unread
};

// A sequence of operations with links of its own, moved by the holder of its lease: a thread that waits for one of the
// operations, or else the progress thread. Only the holder touches links and the operations' memory.
class ProgressEngine : public std::enable_shared_from_this<ProgressEngine> {
 public:
  ProgressEngine(std::shared_ptr<Doorbell> bell, std::weak_ptr<ProgressThread> progress_thread, WaitPolicy policy,
                 std::shared_ptr<const ForkMark> mark);
  virtual ~ProgressEngine() = default;

  // Waits for the operation at most until then, and drives meanwhile. True if it is done. Any thread. Throws
  // Exception(kInvalid) in a forked child (check_process) and in an end function.
  bool wait(const Operation& operation, Clock::time_point until);

  // Takes the lease, for an operation that begins at once; false if another has it or something is pending.
  bool hold() {
    return pending_.load(std::memory_order_relaxed) == 0 && begun_.load(std::memory_order_relaxed) == 0 &&
           try_acquire();
  }
  // Drives the operation to its end, under the lease from hold(), and gives that back. It was not counted by added().
  void run_held(const Operation& operation);

  // Something has changed that the holder must see (a failure, a new operation for the progress thread). Any thread,
  // never blocks for longer than one pass.
  void notify();

  // Throws Exception(kInvalid) in a forked child: what is under way is the parent's.
  void check_process() const;
  // Null once all communicators of the join are gone.
  std::shared_ptr<ProgressThread> progress_thread() const { return progress_thread_.lock(); }

  // A pass, by a thread of the caller's that asks whether one of its operations is done. Any thread.
  void look();
  // Wakes the progress thread if operations are under way that no thread waits for, and it does not look after this
  // engine already: they wait for a peer, which rings. Any thread.
  void ask_unless_served() {
    if (!wants_thread()) return;
    wanted_.store(true);
    if (!served_.load()) poke(false);
  }

  // --- for the progress thread
  // Operations are under way that need a thread, and none waits for them.
  bool wants_thread() const { return (pending_.load() > 0 || begun_.load() >= kNeedsThread) && waiters_.load() == 0; }
  // Once a turn, by the progress thread alone. kLeft: operations are under way, and nobody else moves them. kAttended:
  // threads of the caller's made passes since the last claim, so that the progress thread would only be in their way,
  // and sleeps for a while before it looks again; also while such operations come and go. kNone: it need not.
  enum class Claim : uint8_t { kNone, kAttended, kLeft };
  Claim claim();
  // Something was thrown on the progress thread while it dealt with this engine.
  void failed_on_thread(const Error& error) { broke(error); }
  // One pass, if the lease is free. True if anything moved.
  bool try_drive(Pass pass = Pass::kPolling);
  // The progress thread is about to sleep, and is to be rung for this engine, too. Where another thread has the lease,
  // that one asks for the progress thread when it gives the lease back. True if anything moved.
  bool arm(const Sleep& sleep);
  // It is in the progress thread's list from now on, or not any more.
  void set_served(bool served) { served_.store(served); }
  void woke(const Sleep& sleep);
  Doorbell& bell() { return *bell_; }

 protected:
  // One pass over everything that can move now; under the lease. True if anything moved.
  virtual bool step(Pass pass) = 0;
  // Called now and then while nothing moves, for deadlines and stalls; under the lease.
  virtual void tick(Clock::time_point now) = 0;
  // The program wants a wait of this thread to end (rondo/interrupt.h): fails the communicator. Without the lease.
  virtual void interrupted() = 0;
  // Something was thrown that nobody expects (no memory, say): fails the communicator. With the lease or without.
  virtual void broke(const Error& error) = 0;

  int passes_without_clock() const { return policy_.crowded ? 1 : 64; }  // some 2 us

  // Operations not yet done; kept by the derived class. Counted before an operation can be seen by step().
  void added() { pending_.fetch_add(1); }
  // A done() or probe() has found nothing: after some of them unexpected messages are read.
  void found_nothing();
  // After complete() or fail(): wakes those who wait without the lease.
  void ended();
  // The same for an operation that begins at once, under the lease: without a locked instruction. Its end calls
  // wake_sleepers(), too. A patient one needs no thread: what it waits for is kept until its rank waits or asks.
  void added_by_holder(bool patient) {
    begun_.store(begun_.load(std::memory_order_relaxed) + share(patient), std::memory_order_release);
  }
  void ended_by_holder(bool patient) {
    begun_.store(begun_.load(std::memory_order_relaxed) - share(patient), std::memory_order_release);
  }
  bool any_begun() const { return begun_.load() > 0; }
  void wake_sleepers();

  // Wakes the progress thread if operations are under way that no thread waits for: there is work now.
  void ask_progress_thread() {
    if (wants_thread()) poke(true);
  }
  // The engine is over: what the progress thread has of it is dropped at once.
  void leave_progress_thread();

  // If the lease is free: begin(), passes until done() or until a wait is due to look at the clock, end(); all of it
  // under the lease. False if another thread has it; then nothing has happened.
  template <typename Begin, typename Done, typename End>
  bool poll_if_free(Begin begin, Done done, End end) {
    if (!try_acquire()) return false;
    {
      const Lease lease(*this);
      begin();
      for (int pass = 0; pass < passes_without_clock() && !done(); ++pass) {
        if (!guarded_step(Pass::kPolling)) pause_core();
      }
      end();
      count_polled();
    }
    return true;
  }

  // Under the lease: a wait ends without a sleep.
  void count_polled();
  // Runs `action`, which must be short, under the lease if that is free, beside whatever is under way. False: nothing
  // has happened.
  template <typename Action>
  bool if_free(Action action) {
    if (!try_acquire()) return false;
    const Lease lease(*this);
    action();
    return true;
  }

  // Runs `action`, which must be short and not throw, under the lease: here, or in the next pass of the thread that has
  // it, and may have it for as long as it waits.
  template <typename Action>
  void ask_holder(Action action) {
    struct Asked final : Errand {
      explicit Asked(Action& of) : action(of) {}
      void run() override { action(); }
      Action& action;
    } asked(action);
    await(asked);
  }

  // Runs `action` under the lease, after its holder has given it back (destroy).
  template <typename Action>
  void with_lease(Action action) {
    acquire();
    const Lease lease(*this);
    action();
  }

 private:
  // Something that a thread asks the holder of the lease to do; on its stack.
  struct Errand {
    virtual void run() = 0;
    std::atomic<bool> done{false};
    Errand* next = nullptr;

   protected:
    ~Errand() = default;
  };
  // Gives back what try_acquire() or acquire() took.
  struct Lease {
    explicit Lease(ProgressEngine& of) : engine(of) {}
    ~Lease() { engine.release(); }
    Lease(const Lease&) = delete;
    ProgressEngine& engine;
  };
  // A thread that waits.
  struct Waiter {
    explicit Waiter(ProgressEngine& of) : engine(of) { engine.waiters_.fetch_add(1); }
    ~Waiter() {
      if (engine.waiters_.fetch_sub(1) == 1) engine.ask_unless_served();
    }
    Waiter(const Waiter&) = delete;
    ProgressEngine& engine;
  };

  // step() and tick(); nothing passes them, since operations may lie on the stack of the thread that waits.
  bool guarded_step(Pass pass) {
    try {
      if (errands_.load(std::memory_order_relaxed) != nullptr) run_errands();
      return step(pass);
    } catch (...) {
      broke(caught());
      return true;
    }
  }
  void guarded_tick(Clock::time_point now) {
    try {
      tick(now);
    } catch (...) {
      broke(caught());
    }
  }
  // Of an operation in begun_.
  static uint64_t share(bool patient) { return patient ? 1 : 1 + kNeedsThread; }
  void poke(bool asked);
  bool try_acquire() { return !held_.exchange(true); }  // sequentially consistent, for arm()
  void acquire();
  void release();
  void await(Errand& errand);
  void run_errands();
  void drive(const Operation& operation, Clock::time_point until, Clock::time_point& ask_at);
  void ask_whether_to_end(Clock::time_point& ask_at);
  bool read_inboxes() const;
  bool rest(Clock::time_point until, Clock::duration& nap);
  void go_home_at_times(Clock::time_point now);

  std::shared_ptr<Doorbell> bell_;                 // shared with the fabric, which rings it from its own thread
  std::shared_ptr<const ForkMark> mark_;           // the communicator's
  std::weak_ptr<ProgressThread> progress_thread_;  // owned by the communicators of a process; weak: the progress thread
                                                   // holds engines that want it
  WaitPolicy policy_;
  std::atomic<bool> held_{false};
  std::atomic<bool> served_{false};  // the progress thread polls it, or sleeps on its doorbell, which nobody has taken
  std::atomic<bool> missed_{false};  // the progress thread went to sleep without a look, since another had the lease
  // Of the holder: when it last looked on which core it runs, and the least time until it looks again. A move costs
  // some 10 us.
  Clock::time_point moved_home_{};
  Clock::duration between_moves_ = std::chrono::milliseconds(20);
  VainPolls polls_;      // of the holder
  uint32_t polled_ = 0;  // waits since the last sleep; of the holder
  std::atomic<uint32_t> vain_calls_{0};
  std::atomic<uint32_t> waits_{0};   // of threads of the caller's: passes were made; stored by the holder
  std::atomic<bool> asked_{false};   // there is work that no peer rings for: it is kLeft
  std::atomic<bool> wanted_{false};  // since the last claim: ask_unless_served() found operations that nobody waits for
  uint32_t seen_waits_ = 0;          // of the progress thread, as the two below
  Clock::time_point attended_at_{};  // the last look that found that they had grown
  Clock::time_point wanted_at_{};    // the last look that found wanted_
  bool left_ = false;
  std::atomic<int> waiters_{0};
  std::atomic<int> pending_{0};
  // The number of operations, and above it that of those that need a thread; stored by the holder.
  static constexpr uint64_t kNeedsThread = uint64_t{1} << 32;
  std::atomic<uint64_t> begun_{0};
  // Threads that wait while another holds the lease.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> sleepers_{0};
  std::atomic<Errand*> errands_{nullptr};  // newest first; of threads that wait for them
};

}  // namespace rondo
