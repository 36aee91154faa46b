#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "ring/base/caught.h"
#include "ring/engine/progress/flow_lease.h"
#include "ring/engine/progress/fork_mark.h"
#include "ring/engine/progress/operation.h"
#include "ring/engine/progress/vain_polls.h"
#include "transport/doorbell.h"

namespace rondo {

class Watch;
class Worker;

// Why a flow makes a pass.
enum class Pass : uint8_t {
  kPolling,      // another will follow soon
  kBeforeSleep,  // if nothing moves, a thread sleeps on the (edge-triggered) doorbell: leave nothing unread
};

// A sequence of operations with links of its own: the collectives of a communicator, or its messages. The holder of its
// lease moves it: a thread that waits, or makes a call, or the worker's own. Only the holder touches links and the
// operations' memory.
class Flow : public std::enable_shared_from_this<Flow> {
 public:
  Flow(std::shared_ptr<Doorbell> bell, std::shared_ptr<Worker> worker, WaitPolicy policy,
       std::shared_ptr<const ForkMark> mark);
  virtual ~Flow();

  // Waits for the operation at most until then, and at most so long from its first look at the clock on, which short
  // waits never have. Drives meanwhile: this flow first, and what else is under way in the join. True if it is done.
  // Any thread. Throws Exception(kInvalid) in a forked child (check_process) and in an end function.
  bool wait(const Operation& operation, Clock::time_point until, Clock::duration patience = Clock::duration::max());
  // The same for what this rank's I/O thread brings, which may need this thread's core: asleep, without an end in time.
  void wait_asleep(const Operation& operation);

  // Something has changed that the holder must see (a failure, a new operation that is left to the worker). Any thread,
  // the fabric's among them, which must never be the last to have a flow, and so has no watch; never blocks for longer
  // than one pass.
  void notify();

  // The caller's thread leaves what is under way to the worker. kMovable: some of it can go on at once, and no peer
  // rings for it. Without the lease. Any thread.
  enum class Left : uint8_t { kWaits, kMovable };
  void leave(Left left);

  // Throws Exception(kInvalid) in a forked child: what is under way is the parent's.
  void check_process() const;
  bool in_its_process() const { return mark_->same_process(); }
  Worker& worker() const { return *worker_; }

  // A pass over what is under way, by a thread of the caller's that asks whether one of its operations is done. Any
  // thread.
  void look();

  // Operations are not done yet, or something was submitted. Any thread.
  bool under_way() const { return lease_.state().under_way(); }

  // --- for the worker
  bool idle() const { return lease_.state().idle(); }
  // Something was thrown that nobody expects (no memory, say): fails the communicator. With the lease or without.
  virtual void broke(const Error& error) = 0;
  // One pass, if the lease is free. True if anything moved.
  bool try_drive(Pass pass = Pass::kPolling);
  // The thread that asks is about to sleep, and is to be rung for this flow, too. Where another thread has the lease,
  // that one says so when it gives the lease back (Worker::look_again). True if anything moved.
  bool arm(const Sleep& sleep);
  // The same of the thread that has the lease, which it keeps while it sleeps.
  bool arm_own(const Sleep& sleep);
  void woke(const Sleep& sleep);
  void woke_own(const Sleep& sleep);
  const std::shared_ptr<Doorbell>& bell() const { return bell_; }

 protected:
  // One pass over everything that can move now; under the lease. True if anything moved.
  virtual bool step(Pass pass) = 0;
  // Called now and then while nothing moves, for deadlines and stalls; under the lease.
  virtual void tick(Clock::time_point now) = 0;
  // The program wants a wait of this thread to end (rondo/interrupt.h): fails the communicator. Without the lease.
  virtual void interrupted() = 0;

  int passes_without_clock() const { return policy_.crowded ? 1 : 64; }  // some 2 us

  // wait() without an end in time. held: the lease is this thread's, and the operation is counted.
  void run(const Operation& operation, bool held);

  // submitted(): there is something in the derived class's queue that step() must take, or not any more; by the holder
  // of that queue's lock. count(): so many operations more, or fewer, are under way; under the lease.
  FlowState& state() { return lease_.state(); }
  const FlowState& state() const { return lease_.state(); }
  // After the end of an operation: wakes those who wait without the lease.
  void wake_sleepers() { lease_.wake_sleepers(); }

  // A call that does not wait has moved what it could of this flow, all of it or only its own part: it makes a pass
  // over what else is under way in the join. Without the lease.
  enum class Moved : uint8_t { kAll, kOwnPart };
  void pass_beside(Moved moved);
  // Under the lease: a wait ends without a sleep.
  void count_polled();
  // Runs `action`, which must be short, under the lease if that is free, beside whatever is under way. False: nothing
  // has happened.
  template <typename Action>
  bool if_free(Action action) {
    if (!state().try_acquire()) return false;
    const Lease lease(*this);
    action();
    return true;
  }

  // Runs `action`, which must be short and not throw, under the lease: here, or in the next pass of the thread that has
  // it, and may have it for as long as it waits.
  template <typename Action>
  void ask_holder(Action action) {
    struct Asked final : FlowLease::Task {
      explicit Asked(Action& of) : action(of) {}
      void run() override { action(); }
      Action& action;
    } asked(action);
    await(asked);
  }

  // Runs `action` under the lease, after its holder has given it back (destroy).
  template <typename Action>
  void with_lease(Action action) {
    lease_.acquire();
    const Lease lease(*this);
    action();
  }

 private:
  friend class Worker;
  // Gives back what was acquired.
  struct Lease {
    explicit Lease(Flow& of) : flow(of) {}
    ~Lease() { flow.release(); }
    Lease(const Lease&) = delete;
    Flow& flow;
  };

  // step() and tick(); nothing passes them, since operations may lie on the stack of the thread that waits.
  bool guarded_step(Pass pass) {
    try {
      if (lease_.has_tasks()) lease_.run_tasks();
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
  void release();
  void await(FlowLease::Task& task);
  struct Wait;  // one wait of a thread for an operation

  std::shared_ptr<Doorbell> bell_;        // shared with the fabric, which rings it from its own thread
  std::shared_ptr<const ForkMark> mark_;  // the communicator's
  const std::shared_ptr<Worker> worker_;  // shared by all flows of the join
  WaitPolicy policy_;
  FlowLease lease_{*bell_};
  // When the holder last looked on which core it runs, and the least time until it looks again. A move costs some 10
  // us.
  Clock::time_point moved_home_{};
  Clock::duration between_moves_ = std::chrono::milliseconds(20);
  VainPolls polls_;      // of the holder
  uint32_t polled_ = 0;  // waits since the last sleep; of the holder
};

}  // namespace rondo
