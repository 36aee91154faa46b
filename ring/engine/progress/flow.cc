#include "ring/engine/progress/flow.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "ring/base/cores.h"
#include "ring/base/interrupt.h"
#include "ring/engine/progress/watch.h"
#include "ring/engine/progress/worker.h"

namespace rondo {
namespace {

// Passes between two looks at the clock while every pass moves something: deadlines are still noticed. A pass
// takes up to a millisecond.
constexpr uint32_t kBusyPassesPerLook = 256;
// The same where other flows are under way, which wait for this thread's passes.
constexpr uint32_t kBusyPassesBeside = 4;
// The first sleep of a wait ends after 1 ms, each further one after up to twice the time. A wait that has slept
// in vain reads unexpected messages, too (Worker::add_inbox).
constexpr std::chrono::milliseconds kFirstSleep{1};

constexpr Clock::time_point kNotYet = Clock::time_point::max();

// After so many waits without a sleep the sockets leave the epoll set: a watched socket slows its sender. That
// costs a system call each, and another when the next sleep comes.
constexpr uint32_t kPolledBeforeRelaxing = 256;

// A shorter sleep means that the awaited rank needed nothing but this core: the scheduler has put it beside
// this one, as it does with a woken process, and leaves it there while the two take turns. Over loopback an
// exchange then takes 280 us for seconds, instead of 15. A yield after which something moves means the same.
// 500 us contain the time for which the other rank polls before it sleeps in turn.
constexpr std::chrono::microseconds kShortSleep{500};
// Where there are more ranks than cores, each is moved at its first wait, and rarely later. The scheduler is
// slow to see that three ranks share one core beside a core with one rank. But each move may end the order in
// which the ranks of a core take turns.
constexpr std::chrono::milliseconds kMostBetweenMoves{20'000};

}  // namespace

Flow::Flow(std::shared_ptr<Doorbell> bell, std::shared_ptr<Worker> worker, WaitPolicy policy,
           std::shared_ptr<const ForkMark> mark)
    : bell_(std::move(bell)), mark_(std::move(mark)), worker_(std::move(worker)), policy_(policy), polls_(policy) {}

Flow::~Flow() = default;

// One wait of a thread for an operation; it lies on that thread's stack.
struct Flow::Wait {
  // held: this thread has the lease (Flow::run). True if the operation is done.
  bool run(bool held = false);
  void look(Clock::time_point now) {
    if (patience < until - now) until = now + patience;
    patience = Clock::duration::max();
  }
  void drive();
  void ask_whether_to_end();
  bool rest(Clock::duration& nap);
  void go_home_at_times(Clock::time_point now);

  Flow& flow;
  const Operation& operation;
  // The wait ends then without its operation.
  Clock::time_point until = Clock::time_point::max();
  // Or so long after the first look at the clock; look() turns it into `until`.
  Clock::duration patience = Clock::duration::max();
  bool polls = true;  // false: it falls asleep at its first vain look
  // When the program's interrupt function is asked: 100 ms after the first look at the clock, so that short
  // waits cost nothing more.
  Clock::time_point ask_at = kNotYet;
  Watch watch{*flow.worker_, &flow};
};

bool Flow::wait(const Operation& operation, Clock::time_point until, Clock::duration patience) {
  check_process();
  return Wait{*this, operation, until, patience}.run();
}

void Flow::wait_asleep(const Operation& operation) {
  check_process();
  Wait{.flow = *this, .operation = operation, .polls = false}.run();
}

void Flow::run(const Operation& operation, bool held) { Wait{*this, operation}.run(held); }

// Each turn has the lease and drives the flow, or sleeps until another thread gives the lease back or ends the
// operation. Between turns this thread has neither lease nor watch: the interrupt function is the program's,
// and may take long.
bool Flow::Wait::run(bool held) {
  if (!held) refuse_wait_in_end_function();
  while (held || !operation.done()) {
    if (std::exchange(held, false) || flow.state().try_acquire()) {
      const Lease lease(flow);
      drive();
      flow.count_polled();
    } else {
      const auto now = Clock::now();
      look(now);
      if (ask_at == kNotYet) ask_at = now + kBetweenInterruptQuestions;
      flow.lease_.sleep(std::min(until, now + kLongestSleep), [&] { return operation.done(); });
    }
    if (operation.done()) break;
    watch.give_up();  // this thread may be away for long: in the program's function, or while another has the lease
    ask_whether_to_end();
    if (Clock::now() >= until) break;
  }
  // A wait that was too short for the watch makes one pass for the other flows. So a program whose calls are
  // all short and blocking still moves its asynchronous ones.
  if (!watch.held()) flow.pass_beside(Moved::kAll);
  return operation.done();
}

void Flow::check_process() const {
  if (mark_->same_process()) return;
  throw Exception(ErrorCode::kInvalid,
                  "this operation is under way in the process that started it, from which this "
                  "one was forked: only that one can wait for it");
}

bool Flow::fail_if_interrupted() {
  if (!call_interrupted()) return false;
  interrupted();
  return true;
}

// Asks the program's interrupt function if that is due. Without the lease.
void Flow::Wait::ask_whether_to_end() {
  if (Clock::now() < ask_at) return;
  ask_at = kNotYet;
  if (interrupt_requested()) flow.interrupted();
}

// Moves the flow until the operation is done: polls, then yields, then sleeps, as VainPolls says. Under the
// lease.
//
// It returns early at the deadline and at ask_at; run() does what is due, and comes back.
void Flow::Wait::drive() {
  using Next = VainPolls::Next;
  uint32_t busy = 0;
  Clock::duration nap = kFirstSleep;
  flow.polls_.begin();
  while (true) {
    const bool moved = flow.guarded_step(Pass::kPolling);
    // Something moved right after a yield: the rank that sent it shares this core.
    if (moved && flow.polls_.moved()) go_home_at_times(Clock::now());
    if (operation.done()) return;
    if (moved) {
      // While everything moves there is no reason to look at the clock, but for deadlines and other flows.
      if (++busy % (flow.worker_->busy_beside(flow) ? kBusyPassesBeside : kBusyPassesPerLook) != 0) continue;
    } else if (!flow.polls_.vain()) {
      pause_core();
      continue;
    }
    const auto now = Clock::now();
    flow.guarded_tick(now);
    look(now);
    if (operation.done() || now >= until || now >= ask_at) return;
    if (ask_at == kNotYet && has_interrupt_function()) ask_at = now + kBetweenInterruptQuestions;
    // Other flows are moved by one waiting thread only, the holder of the watch.
    const bool beside = flow.worker_->busy_beside(flow) && watch.take() && watch.pass(Pass::kPolling);
    // The worker's thread stays aside while waiting threads make these passes.
    if (flow.worker_->busy()) flow.worker_->attended();
    if (moved) continue;
    if (beside) {
      flow.polls_.begin();
      continue;
    }
    const Next next = polls ? flow.polls_.next(now) : Next::kSleep;
    if (next == Next::kPoll) continue;
    if (next == Next::kYield) {
      sched_yield();
      flow.polls_.yielded(now, Clock::now());
      if (flow.policy_.crowded) go_home_at_times(now);
      // A sleep has ended in vain. The awaited rank may itself wait until this one reads its message.
    } else if (nap > kFirstSleep && flow.worker_->read_inboxes(&flow)) {
      nap = 2 * kFirstSleep;
      flow.polls_.begin();
    } else if (rest(nap)) {
      flow.polls_.begin();
    }
    if (operation.done()) return;
  }
}

// Goes back to this rank's own core, but not too often. The awaited rank runs on this core, or may.
void Flow::Wait::go_home_at_times(Clock::time_point now) {
  if (now - flow.moved_home_ <= flow.between_moves_) return;
  flow.moved_home_ = now;
  if (!go_home(flow.policy_.home) || !flow.policy_.crowded) return;
  flow.between_moves_ = std::min<Clock::duration>(4 * flow.between_moves_, kMostBetweenMoves);
}

// Sleeps until something may have changed, at most for `nap`, which a sleep in vain doubles. True if something
// moved before it could fall asleep.
bool Flow::Wait::rest(Clock::duration& nap) {
  // With the watch this thread is rung for all flows; the worker's thread may then sleep.
  if (flow.worker_->busy_beside(flow)) watch.take();
  flow.polled_ = 0;
  const auto asleep = Clock::now();
  Error error;
  const bool slept = watch.sleep(nullptr, std::min(until, asleep + nap), error);
  if (!error.ok()) flow.broke(error);
  if (!slept) return true;
  flow.polls_.slept();
  const auto awake = Clock::now();
  if (awake - asleep >= nap) nap = std::min<Clock::duration>(2 * nap, kLongestSleep);
  if (awake - asleep < kShortSleep) go_home_at_times(awake);
  return false;
}

void Flow::count_polled() {
  if (++polled_ == kPolledBeforeRelaxing) bell_->relax();
}

void Flow::pass_beside(Moved moved) {
  if (!worker_->busy()) return;
  if (moved == Moved::kAll || !under_way()) worker_->attended();
  if (worker_->busy_beside(*this)) pass_over_others();
}

void Flow::pass_over_others() {
  Watch watch(*worker_, this);
  if (watch.take()) watch.pass(Pass::kPolling);
}

void Flow::fail_caught() { broke(caught()); }

void Flow::leave(Left left) {
  if (!under_way()) return;
  state().listed() ? worker_->wake_if_left() : worker_->list(*this);
  if (left == Left::kMovable) worker_->take_over();
}

// Where another thread has the lease, that thread moves the flow. In a forked child nothing is moved.
void Flow::look() {
  if (!mark_->same_process()) return;
  bool moved = false;
  if_free([&] {
    moved = guarded_step(Pass::kPolling);
    if (!moved) guarded_tick(Clock::now());
    count_polled();
  });
  pass_beside(Moved::kAll);
  if (!moved) worker_->found_nothing();
}

void Flow::notify() {
  bell_->ring();
  // If the second pass moved something, more may be movable at once, and no peer rings for it. If it moved
  // nothing, the operation waits for a peer.
  const bool movable = try_drive() && try_drive();
  leave(movable ? Left::kMovable : Left::kWaits);
}

bool Flow::arm(const Sleep& sleep) {
  if (!state().try_acquire_before_sleep()) return false;
  const Lease lease(*this);
  bell_->arm(sleep);
  return guarded_step(Pass::kBeforeSleep);
}

bool Flow::arm_own(const Sleep& sleep) {
  state().miss();
  wake_sleepers();  // of operations on a stack, whose end no exchange follows
  bell_->arm(sleep);
  return guarded_step(Pass::kBeforeSleep);
}

void Flow::woke(const Sleep& sleep) {
  bell_->disarm(sleep);
  // Another thread has the lease; it takes the events with its own sleep.
  if (!state().try_acquire()) return;
  const Lease lease(*this);
  bell_->take_events();
}

void Flow::woke_own(const Sleep& sleep) {
  bell_->disarm(sleep);
  bell_->take_events();
}

bool Flow::try_drive(Pass pass) {
  if (!state().try_acquire()) return false;
  const Lease lease(*this);
  const bool moved = guarded_step(pass);
  if (!moved) guarded_tick(Clock::now());
  return moved;
}

// Posted first, then tried: the holder runs the task in its next pass, or gives the lease back and this thread
// runs it.
void Flow::await(FlowLease::Task& task) {
  lease_.post(task);
  while (!task.done.load()) {
    if (state().try_acquire()) {
      const Lease lease(*this);
      lease_.run_tasks();
    } else {
      lease_.sleep(Clock::now() + kLongestSleep, [&] { return task.done.load(); });
    }
  }
}

// Gives the lease back, then wakes threads that wait for it. The order matters: a sleeper that is woken first
// would find the lease taken, and sleep again.
void Flow::release() {
  const bool look_again = state().release();
  wake_sleepers();
  if (look_again) worker_->look_again();
}

}  // namespace rondo
