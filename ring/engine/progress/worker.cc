#include "ring/engine/progress/worker.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "ring/base/caught.h"
#include "ring/base/own_thread.h"
#include "ring/engine/progress/watch.h"

namespace rondo {

namespace {

// The longest sleep of the thread while it has nothing to do.
constexpr std::chrono::minutes kLongestIdleSleep{1};
// Looks at which the thread is not needed before it sleeps until it is rung: to wake it costs the caller's
// thread some microseconds. Then idle flows leave the list.
constexpr int kIdleLooks = 8;
// A rank that makes passes this often moves large messages nearly as fast as a thread that does nothing else:
// each pass moves everything that lies between the two ranks.
constexpr std::chrono::microseconds kBetweenPasses{50};
// Calls of done() or probe() that find nothing for each read of the inboxes: a read takes the worker's lock.
constexpr uint32_t kVainCallsPerRead = 32;

}  // namespace

Worker::Worker(WaitPolicy policy, std::shared_ptr<Sleepers> sleepers)
    : policy_(policy), pid_(::getpid()), sleepers_(std::move(sleepers)) {}

std::shared_ptr<Worker> Worker::make(WaitPolicy policy, std::shared_ptr<Sleepers> sleepers) {
  auto worker = std::make_shared<Worker>(policy, std::move(sleepers));
  Worker* const stopped = worker.get();
  return {stopped, [worker = std::move(worker)](Worker*) { worker->stop(); }};
}

void Worker::start() {
  if (started()) return;
  std::lock_guard lock(mutex_);
  if (over_ || stopping_.load() || thread_.joinable()) return;
  thread_ = start_own_thread("rondo-progress", [self = shared_from_this()] { self->run(); });
  started_.store(true, std::memory_order_release);
}

// Ends the thread and waits for it. A function of on_end() may let go of the last communicator, and so stops
// its own thread, which is detached and ends afterwards.
//
// A forked child has no such thread, and another thread of the parent's may have had the lock at the fork. So
// it only makes thread_ empty, without join() or detach(): a thread of the child's own may have its number.
void Worker::stop() noexcept {
  if (::getpid() != pid_) return static_cast<void>(std::construct_at(&thread_));
  std::thread ends;
  {
    std::lock_guard lock(mutex_);
    stopping_.store(true);
    std::swap(ends, thread_);
  }
  bell_.ring();
  if (!ends.joinable()) return close();
  if (ends.get_id() == std::this_thread::get_id()) return ends.detach();
  ends.join();
  close();
}

// The version grows before the ring: a thread that is about to sleep with the watch announces that, then
// compares the version. So it sees the new flow, or it is rung.
void Worker::list(Flow& flow) noexcept {
  try {
    std::lock_guard lock(mutex_);
    if (flow.state().listed() || over_) return;
    flows_.push_back(flow.shared_from_this());
    flow.state().list(true);
    listed_.fetch_add(1);
    version_.fetch_add(1);
  } catch (...) {  // no memory: the failure ends what is under way
    return flow.broke(caught());
  }
  look_again();
}

void Worker::take_over() noexcept {
  if (!watch_.nobody()) return watch_bell_.ring();
  asked_.store(true);
  bell_.ring();
}

void Worker::look_again() {
  watch_bell_.ring();
  wake_if_left();
}

void Worker::wake_if_left() {
  if (watch_.left()) bell_.ring();
}

// Takes flows that have nothing under way from the list. By the worker's thread, before a long sleep.
void Worker::drop_idle() {
  std::vector<std::shared_ptr<Flow>> dropped;  // ended without the lock: their ends may come here
  std::lock_guard lock(mutex_);
  dropped.reserve(flows_.size());
  const auto idle = std::stable_partition(flows_.begin(), flows_.end(),
                                          [](const auto& flow) { return !flow->state().drop_if_idle(); });
  dropped.assign(std::make_move_iterator(idle), std::make_move_iterator(flows_.end()));
  flows_.erase(idle, flows_.end());
  listed_.store(static_cast<uint32_t>(flows_.size()));
  if (!dropped.empty()) version_.fetch_add(1);
}

// Ends what the thread did: it has ended, or never ran. The list lets go of its flows, which share this object
// in turn.
void Worker::close() {
  end_functions_.close();
  std::vector<std::shared_ptr<Flow>> dropped;  // ended without the lock
  std::lock_guard lock(mutex_);
  over_ = true;
  std::swap(dropped, flows_);
  for (const auto& flow : dropped) flow->state().list(false);
  listed_.store(0);
  version_.fetch_add(1);
}

// Flows are under way, and no sleeper with the watch is rung for them.
bool Worker::needed() {
  if (watch_.asleep()) return false;
  std::lock_guard lock(mutex_);
  return std::any_of(flows_.begin(), flows_.end(), [](const auto& flow) { return !flow->idle(); });
}

std::vector<std::shared_ptr<Flow>> Worker::flows() {
  std::lock_guard lock(mutex_);
  return flows_;
}

// Inboxes are compared by their owner, without a shared reference: the last one must not be given up under the
// lock.
void Worker::forget(const Flow& flow) {
  std::shared_ptr<Flow> dropped;  // ends without the lock
  std::lock_guard lock(mutex_);
  std::erase_if(inboxes_, [own = flow.weak_from_this()](const auto& inbox) {
    return !inbox.owner_before(own) && !own.owner_before(inbox);
  });
  const auto found =
      std::find_if(flows_.begin(), flows_.end(), [&](const auto& listed) { return listed.get() == &flow; });
  if (found == flows_.end()) return;
  dropped = std::move(*found);
  flows_.erase(found);
  dropped->state().list(false);
  listed_.store(static_cast<uint32_t>(flows_.size()));
  version_.fetch_add(1);
}

void Worker::add_inbox(const std::shared_ptr<Flow>& flow) {
  std::lock_guard lock(mutex_);
  std::erase_if(inboxes_, [](const auto& inbox) { return inbox.expired(); });
  inboxes_.push_back(flow);
}

// One flow at a time, without the lock: a pass may end operations, whose ends may come here.
bool Worker::read_inboxes(const Flow* but) {
  bool moved = false;
  for (size_t i = 0;; ++i) {
    std::shared_ptr<Flow> flow;  // ends without the lock
    {
      std::lock_guard lock(mutex_);
      if (i >= inboxes_.size()) return moved;
      flow = inboxes_[i].lock();
    }
    if (flow && flow.get() != but) moved |= flow->try_drive(Pass::kBeforeSleep);
  }
}

void Worker::found_nothing() {
  if (vain_calls_.fetch_add(1, std::memory_order_relaxed) % kVainCallsPerRead == kVainCallsPerRead - 1) {
    read_inboxes(nullptr);
  }
}

void Worker::call(std::unique_ptr<EndCall> call) noexcept {
  end_functions_.add(std::move(call));
  bell_.ring();
}

bool Worker::called_for() { return stopping_.load() || asked_.load() || end_functions_.any(); }

// An exception in a turn (no memory, say) fails all listed flows, since nobody else may be there to move them.
// The thread goes on.
void Worker::run() {
  Watch watch(*this, nullptr);
  VainPolls polls(policy_);
  while (!stopping_.load()) {
    try {
      turn(watch, polls);
    } catch (...) {
      fail_all(caught());
    }
  }
  watch.give_up();
  close();
}

// One turn of the thread. It calls the functions of on_end() first. Then it takes the watch and makes a pass,
// unless the caller's threads do that (attention), or nothing is under way: then it stands aside. With the
// watch it polls, yields and sleeps as VainPolls says, like any waiting thread.
void Worker::turn(Watch& watch, VainPolls& polls) {
  using Next = VainPolls::Next;
  end_functions_.run();
  const auto now = Clock::now();
  clock_.look(now);  // a pass that moves something does not
  const Attention paid = attention(now);
  const bool had = watch.held();
  if (paid == Attention::kOften || !busy() || !watch.take() || !watch.under_way()) {
    watch.give_up();
    return stand_aside();
  }
  if (!had) polls.begin();
  if (watch.pass(Pass::kPolling)) {
    polls.moved();
    moved_ = true;
    return;
  }
  if (!polls.vain()) return;
  // The caller's threads come back now and then. This thread has moved what it could, and leaves the watch to
  // them.
  if (paid == Attention::kSeldom) {
    watch.give_up();
    return stand_aside();
  }
  aside_ = kAside;
  const Next next = polls.next(now);
  if (next == Next::kYield) {
    sched_yield();
    polls.yielded(now, Clock::now());
  } else if (next == Next::kSleep) {
    Error error;
    if (watch.sleep(&bell_, now + kLongestSleep, error)) polls.slept();
    if (!error.ok()) fail_all(error);
    if (Clock::now() - now >= kLongestSleep) read_inboxes(nullptr);
  }
}

// Whether the caller's threads make passes over all flows: counted anew every kAside. take_over() asks for this
// thread in any case.
Worker::Attention Worker::attention(Clock::time_point now) {
  const auto since = std::chrono::duration_cast<std::chrono::microseconds>(now - looked_at_);
  const bool asked = asked_.load() && asked_.exchange(false);
  if (since < kAside && !asked) return paid_;
  const uint32_t passes = attention_.load(std::memory_order_relaxed);
  const uint32_t grown = passes - std::exchange(looked_passes_, passes);
  looked_at_ = now;
  if (asked) return paid_ = Attention::kSeldom;
  if (grown == 0) return paid_ = Attention::kNone;
  return paid_ = grown >= since / kBetweenPasses ? Attention::kOften : Attention::kSeldom;
}

// Sleeps until the next look; or until it is rung, if it was not needed for some looks. Before the second kind
// of sleep it announces that, then looks at the flows once more (WatchState::sound_asleep).
void Worker::stand_aside() {
  idle_looks_ = needed() ? 0 : idle_looks_ + 1;
  if (moved_ && moved_before_) aside_ = kAside;
  moved_before_ = std::exchange(moved_, false);
  bool sound = idle_looks_ >= kIdleLooks;
  if (sound) drop_idle();
  Sleep sleep(*sleepers_);
  bell_.arm(sleep);
  watch_.sound_asleep(sound);
  if (sound && needed()) watch_.sound_asleep(sound = false);
  Error error;
  if (!called_for()) {
    error = sleep.wait({}, Clock::now() + (sound ? Clock::duration(kLongestIdleSleep) : Clock::duration(aside_)));
    aside_ = sound ? kAside : std::min(4 * aside_, kLongestAside);
  }
  if (sound) {  // the thread that has rung is likely to wait next: leave the watch to it
    paid_ = Attention::kOften;
    looked_at_ = Clock::now();
  }
  watch_.sound_asleep(false);
  bell_.disarm(sleep);
  if (!error.ok()) fail_all(error);
}

// Fails all listed flows, without the lock: a flow that fails comes back here, to leave operations and
// functions.
void Worker::fail_all(const Error& error) {
  for (const auto& flow : flows()) flow->broke(error);
}

}  // namespace rondo
