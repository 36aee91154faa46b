#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

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

// A sequence of operations with links of its own: the collectives of a communicator, or its messages. The
// holder of its lease moves it: a thread that waits, a thread that makes a call, or the worker's own. Only the
// holder touches the links, the runs and the memory of the operations.
//
// The communicator, each operation that counts references, and the worker while the flow is listed share it. So
// an operation that is under way keeps its flow when its communicator is gone.
class Flow : public std::enable_shared_from_this<Flow> {
 public:
  Flow(std::shared_ptr<Doorbell> bell, std::shared_ptr<Worker> worker, WaitPolicy policy,
       std::shared_ptr<const ForkMark> mark);
  virtual ~Flow();

  // Waits for the operation until `until`, and for at most `patience` from the first look at the clock on; a
  // short wait never looks. Moves this flow meanwhile, and what else is under way in the join. True if the
  // operation is done. Any thread. Throws Exception(kInvalid) in a forked child and in an end function.
  bool wait(const Operation& operation, Clock::time_point until, Clock::duration patience = Clock::duration::max());
  // The same without polling, and without an end in time. For operations that the I/O thread of this rank
  // completes, which may need this thread's core.
  void wait_asleep(const Operation& operation);

  // Says that something has changed which the holder must see: a failure, or a new operation that is left to
  // the worker. It rings the doorbell, and makes passes where the lease is free. Any thread, also the fabric's
  // I/O thread. That one must never have the last reference to a flow, and takes no watch. Blocks for two
  // passes at most.
  void notify();

  // The caller's thread leaves what is under way to the worker. kWaits: a peer must do something first, and
  // rings then. kMovable: some of it can go on at once, and no peer rings for it. Without the lease. Any
  // thread.
  enum class Left : uint8_t { kWaits, kMovable };
  void leave(Left left);

  // Throws Exception(kInvalid) in a forked child: the operations belong to the parent.
  void check_process() const;
  bool in_its_process() const { return mark_->same_process(); }
  Worker& worker() const { return *worker_; }

  // One pass for Work::done(): over this flow if its lease is free, then over what else is under way. Any
  // thread.
  void look();

  // For waits of the calling thread that are none for an operation, which ask it now and then. True: the program has
  // ended the wait, and the communicator has failed. Without the lease.
  bool fail_if_interrupted();

  // Operations are not done yet, or something was submitted. Any thread.
  bool under_way() const { return lease_.state().under_way(); }

  // --- for the worker
  bool idle() const { return lease_.state().idle(); }
  // An exception that nobody expects (no memory, say) was caught: fails the communicator. With the lease or
  // without.
  virtual void broke(const Error& error) = 0;
  // One pass, if the lease is free. True if anything moved.
  bool try_drive(Pass pass = Pass::kPolling);
  // Arms the doorbell for a thread that is about to sleep, and makes a last pass. Where another thread has the
  // lease, its release() calls Worker::look_again() instead. True if anything moved: then the thread must not
  // sleep.
  bool arm(const Sleep& sleep);
  // arm() by the thread that has the lease, which it keeps while it sleeps.
  bool arm_own(const Sleep& sleep);
  // After the sleep: disarms the doorbell, and takes the events of its sockets away, which needs the lease.
  void woke(const Sleep& sleep);
  void woke_own(const Sleep& sleep);
  const std::shared_ptr<Doorbell>& bell() const { return bell_; }

 protected:
  // One pass over everything that can move now; under the lease. True if anything moved. Never blocks.
  virtual bool step(Pass pass) = 0;
  // Called now and then while nothing moves, for deadlines and stalls; under the lease. Never blocks.
  virtual void tick(Clock::time_point now) = 0;
  // The program's interrupt function has asked for the end of a wait: fails the communicator. Without the
  // lease.
  virtual void interrupted() = 0;

  int passes_without_clock() const { return policy_.crowded ? 1 : 64; }  // some 2 us

  // wait() without an end in time, for blocking calls. held: this thread has the lease, and has counted the
  // operation.
  void run(const Operation& operation, bool held);

  // submitted(): by the holder of the lock of the derived class's queue, when something is put in or the last
  // is taken out. count(): under the lease, when an operation begins or ends.
  FlowState& state() { return lease_.state(); }
  const FlowState& state() const { return lease_.state(); }
  // After the end of an operation: wakes threads that wait for it without the lease.
  void wake_sleepers() { lease_.wake_sleepers(); }

  // In a handler: broke() with what was caught. Apart, so that calls that throw nothing do not make room for it.
  [[gnu::cold]] void fail_caught();

  // A call that does not wait has made passes over this flow: over all of it, or over its own part. Makes one
  // over the other flows of the join. Without the lease.
  enum class Moved : uint8_t { kAll, kOwnPart };
  void pass_beside(Moved moved);
  // A wait ends without a sleep; under the lease.
  void count_polled();
  // Runs `action`, which must be short, under the lease if that is free. False: nothing has happened.
  template <typename Action>
  bool if_free(Action action) {
    if (!state().try_acquire()) return false;
    const Lease lease(*this);
    action();
    return true;
  }

  // Runs `action` under the lease: here if that is free, else in the next pass of its holder, who may keep the
  // lease for as long as it waits. The action must be short and not throw.
  template <typename Action>
  void ask_holder(Action action) {
    struct Asked final : FlowLease::Task {
      explicit Asked(Action& of) : action(of) {}
      void run() override { action(); }
      Action& action;
    } asked(action);
    await(asked);
  }

  // Runs `action` under the lease, after its holder has given it back. For destroy(), which may wait.
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

  // The posted tasks, then step(). No exception leaves it: operations may lie on the stack of the waiting
  // thread, which must not unwind while the flow refers to them.
  bool guarded_step(Pass pass) {
    try {
      if (lease_.has_tasks()) lease_.run_tasks();
      return step(pass);
    } catch (...) {
      fail_caught();
      return true;
    }
  }
  void guarded_tick(Clock::time_point now) {
    try {
      tick(now);
    } catch (...) {
      fail_caught();
    }
  }
  void release();
  void pass_over_others();
  void await(FlowLease::Task& task);
  struct Wait;  // one wait of a thread for an operation

  std::shared_ptr<Doorbell> bell_;        // shared with the fabric, which rings it from its own thread
  std::shared_ptr<const ForkMark> mark_;  // the communicator's
  const std::shared_ptr<Worker> worker_;  // shared by all flows of the join
  WaitPolicy policy_;
  FlowLease lease_{*bell_};
  // When the holder last looked on which core it runs, and the least time until the next look. A move to
  // another core costs some 10 us.
  Clock::time_point moved_home_{};
  Clock::duration between_moves_ = std::chrono::milliseconds(20);
  VainPolls polls_;      // under the lease
  uint32_t polled_ = 0;  // waits since the last sleep; under the lease
};

}  // namespace rondo
