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

// While something moves all the time, deadlines are still looked at, this often: a pass takes up to a millisecond.
constexpr uint32_t kBusyPassesPerLook = 256;
// The same where other flows are under way: they wait for these passes.
constexpr uint32_t kBusyPassesBeside = 4;
// The first sleep of a wait ends after 1 ms at most. Each further sleep may be twice as long as the one before it. A
// wait that has slept in vain reads unexpected messages, too (Worker::add_inbox).
constexpr std::chrono::milliseconds kFirstSleep{1};

constexpr Clock::time_point kNotYet = Clock::time_point::max();

// After N waits without a sleep the sockets leave the epoll set, which costs a system call each, and another when
// the next sleep comes.
constexpr uint32_t kPolledBeforeRelaxing = 256;

// A sleep so short means that what was waited for needed nothing but this core: the scheduler has put another rank
// beside this one (a woken process comes to its waker's core), and leaves it there while they take turns (seen: 280 us
// an exchange over loopback for seconds, instead of 15). So does a yield after which something moves. The other may
// poll for its own time before it sleeps in turn.
constexpr std::chrono::microseconds kShortSleep{500};
// Where there are more ranks than cores, each is moved at its first wait, and rarely later on: the scheduler needs long
// to see that three that yield to each other share a core beside one with a single rank, but a move may also end the
// order in which the ranks of a core take turns.
constexpr std::chrono::milliseconds kMostBetweenMoves{20'000};

}  // namespace

Flow::Flow(std::shared_ptr<Doorbell> bell, std::shared_ptr<Worker> worker, WaitPolicy policy,
           std::shared_ptr<const ForkMark> mark)
    : bell_(std::move(bell)), mark_(std::move(mark)), worker_(std::move(worker)), policy_(policy), polls_(policy) {}

Flow::~Flow() = default;

// On the stack of the thread that waits.
struct Flow::Wait {
  // held: as of Flow::run(). True if the operation is done.
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
  // It ends then, or so long after its first look at the clock, without what it waits for.
  Clock::time_point until = Clock::time_point::max();
  Clock::duration patience = Clock::duration::max();
  bool polls = true;  // false: it falls asleep at its first vain look
  // When the program is asked whether the wait is to end: 100 ms after the first look, so that short waits cost nothing
  // more.
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
  if (!watch.held()) flow.pass_beside(Moved::kAll);
  return operation.done();
}

void Flow::check_process() const {
  if (mark_->same_process()) return;
  throw Exception(ErrorCode::kInvalid,
                  "this operation is under way in the process that started it, from which this "
                  "one was forked: only that one can wait for it");
}

// Calls the program's function if that is due.
void Flow::Wait::ask_whether_to_end() {
  if (Clock::now() < ask_at) return;
  ask_at = kNotYet;
  if (interrupt_requested()) flow.interrupted();
}

// Polls, yields and sleeps (VainPolls). Returns early at ask_at, which it sets if that has not been done and there is a
// function to ask.
void Flow::Wait::drive() {
  using Next = VainPolls::Next;
  uint32_t busy = 0;
  Clock::duration nap = kFirstSleep;
  flow.polls_.begin();
  while (true) {
    const bool moved = flow.guarded_step(Pass::kPolling);
    if (moved && flow.polls_.moved()) go_home_at_times(Clock::now());
    if (operation.done()) return;
    if (moved) {
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
    const bool beside = flow.worker_->busy_beside(flow) && watch.take() && watch.pass(Pass::kPolling);
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
    } else if (nap > kFirstSleep && flow.worker_->read_inboxes(&flow)) {
      nap = 2 * kFirstSleep;
      flow.polls_.begin();
    } else if (rest(nap)) {
      flow.polls_.begin();
    }
    if (operation.done()) return;
  }
}

// What was waited for ran on this core, or may have.
void Flow::Wait::go_home_at_times(Clock::time_point now) {
  if (now - flow.moved_home_ <= flow.between_moves_) return;
  flow.moved_home_ = now;
  if (!go_home(flow.policy_.home) || !flow.policy_.crowded) return;
  flow.between_moves_ = std::min<Clock::duration>(4 * flow.between_moves_, kMostBetweenMoves);
}

// Sleeps until something may have changed, at most so long, and the next time longer. True if something moved before
// it could fall asleep.
bool Flow::Wait::rest(Clock::duration& nap) {
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
  if (!worker_->busy_beside(*this)) return;
  Watch watch(*worker_, this);
  if (watch.take()) watch.pass(Pass::kPolling);
}

void Flow::leave(Left left) {
  if (!under_way()) return;
  state().listed() ? worker_->wake_if_left() : worker_->list(*this);
  if (left == Left::kMovable) worker_->take_over();
}

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

void Flow::release() {
  const bool look_again = state().release();
  wake_sleepers();
  if (look_again) worker_->look_again();
}

}  // namespace rondo
