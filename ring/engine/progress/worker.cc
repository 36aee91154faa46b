#include "ring/engine/progress/worker.h"

#include <sched.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "ring/base/caught.h"
#include "ring/base/log.h"
#include "ring/base/own_thread.h"

namespace rondo {

namespace {

// Static and behind functions: gold links a hidden thread-local variable of another file to offset 0 of the shared
// library's block (binutils 2.40).
thread_local bool calling_functions = false;

// The longest sleep with the watch, as in flow.cc: deadlines and stalls are noticed within it.
constexpr std::chrono::milliseconds kLongestSleep{20};
// The longest sleep of the thread while it has nothing to do.
constexpr std::chrono::minutes kLongestIdleSleep{1};
// A flow with nothing under way stays in the list for so many looks of the thread: to list it anew wakes the thread.
constexpr int kIdleLooks = 8;
// done() and probe() read unexpected messages once in so many calls that find nothing: a read takes locks.
constexpr uint32_t kVainCallsPerRead = 32;

}  // namespace

bool in_end_function() { return calling_functions; }

void refuse_wait_of_this_thread() {
  if (!calling_functions) return;
  throw Exception(ErrorCode::kInvalid, "a function of on_end() must not wait: start calls by their asynchronous forms");
}

// --- Worker

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

// An end function that had the last communicator stops its own thread, which ends after it.
void Worker::stop() noexcept {
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

void Worker::list(Flow& flow) noexcept {
  try {
    std::lock_guard lock(mutex_);
    if (flow.listed_.load() || over_) return;
    flows_.push_back(flow.shared_from_this());
    flow.listed_.store(true);
    listed_.fetch_add(1);
    version_.fetch_add(1);
  } catch (...) {  // no memory: the failure ends what is under way
    return flow.failed_on_thread(caught());
  }
  look_again();
}

void Worker::take_over() noexcept {
  if (holder_.load() != Holder::kNobody) return watch_bell_.ring();
  asked_.store(true);
  bell_.ring();
}

bool Worker::busy_beside(const Flow& own) const {
  const uint32_t listed = listed_.load(std::memory_order_relaxed);
  return listed > 1 || (listed == 1 && !own.listed_.load(std::memory_order_relaxed));
}

void Worker::look_again() {
  watch_bell_.ring();
  if (sound_asleep_.load() && busy()) bell_.ring();
}

// Flows that have nothing under way leave the list. First they are not listed, then the second look: who starts an
// operation counts it, gives the lease back, and then asks whether the flow is listed.
void Worker::drop_idle() {
  std::vector<std::shared_ptr<Flow>> dropped;  // ended without the lock: their ends may come here
  std::lock_guard lock(mutex_);
  dropped.reserve(flows_.size());
  const auto idle = std::stable_partition(flows_.begin(), flows_.end(), [](const auto& flow) {
    if (flow->under_way()) return true;
    flow->listed_.store(false);
    static_cast<void>(flow->held_.load());  // what its last holder counted is seen
    if (!flow->under_way()) return false;
    flow->listed_.store(true);
    return true;
  });
  dropped.assign(std::make_move_iterator(idle), std::make_move_iterator(flows_.end()));
  flows_.erase(idle, flows_.end());
  listed_.store(static_cast<uint32_t>(flows_.size()));
  if (!dropped.empty()) version_.fetch_add(1);
}

// The thread has ended, or there was none.
void Worker::close() {
  std::vector<std::shared_ptr<Flow>> dropped;  // ended without the lock
  std::lock_guard lock(mutex_);
  over_ = true;
  std::swap(dropped, flows_);
  for (const auto& flow : dropped) flow->listed_.store(false);
  listed_.store(0);
  version_.fetch_add(1);
}

bool Worker::any_under_way() {
  std::lock_guard lock(mutex_);
  return std::any_of(flows_.begin(), flows_.end(), [](const auto& flow) { return flow->under_way(); });
}

std::vector<std::shared_ptr<Flow>> Worker::flows() {
  std::lock_guard lock(mutex_);
  return flows_;
}

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
  dropped->listed_.store(false);
  listed_.store(static_cast<uint32_t>(flows_.size()));
  version_.fetch_add(1);
}

void Worker::add_inbox(const std::shared_ptr<Flow>& flow) {
  std::lock_guard lock(mutex_);
  std::erase_if(inboxes_, [](const auto& inbox) { return inbox.expired(); });
  inboxes_.push_back(flow);
}

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

void Worker::found_nothing(const Flow& own) {
  if (vain_calls_.fetch_add(1, std::memory_order_relaxed) % kVainCallsPerRead == kVainCallsPerRead - 1) {
    read_inboxes(&own);
  }
}

void Worker::call(std::unique_ptr<EndCall> call) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (!over_) {
      call->next = nullptr;
      (last_call_ != nullptr ? last_call_->next : first_call_) = call.get();
      last_call_ = call.release();
      ++calls_asked_;
    }
  }
  if (call) return run_function(*call);
  bell_.ring();
}

void Worker::finish_calls() {
  std::unique_lock lock(mutex_);
  called_.wait(lock, [this, asked = calls_asked_] { return calls_done_ >= asked; });
}

bool Worker::called_for() {
  if (stopping_.load() || asked_.load()) return true;
  std::lock_guard lock(mutex_);
  return first_call_ != nullptr;
}

void Worker::run_function(EndCall& call) noexcept {
  try {
    call.run();
  } catch (...) {
    // Of an operation without a flow: there is no communicator that could fail.
    Logger().warn("a function of on_end() has thrown: " + caught().message);
  }
}

void Worker::call_functions() {
  EndCall* calls = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (first_call_ == nullptr) return;
    std::swap(calls, first_call_);
    last_call_ = nullptr;
  }
  calling_functions = true;
  threads_in_end_functions.fetch_add(1);
  uint64_t done = 0;
  for (; calls != nullptr; ++done) {
    const std::unique_ptr<EndCall> call(std::exchange(calls, calls->next));
    run_function(*call);
  }
  threads_in_end_functions.fetch_sub(1);
  calling_functions = false;
  {
    std::lock_guard lock(mutex_);
    calls_done_ += done;
  }
  called_.notify_all();
}

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
  call_functions();
}

// One turn of the thread: a pass with the watch, or a sleep.
void Worker::turn(Watch& watch, VainPolls& polls) {
  using Next = VainPolls::Next;
  call_functions();
  const uint32_t attention = attention_.load(std::memory_order_relaxed);
  const bool attended = std::exchange(seen_, attention) != attention;
  const bool asked = asked_.load() && asked_.exchange(false);
  const bool had = watch.held();
  if ((attended && !asked) || !busy() || !watch.take() || !watch.under_way()) {
    watch.give_up();
    return stand_aside();
  }
  aside_ = kAside;
  if (!had) polls.begin();
  if (watch.pass(Pass::kPolling)) {
    polls.moved();
    return;
  }
  if (!polls.vain()) return;
  const auto now = Clock::now();
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

// Sleeps until the next look, or until it is rung where nothing is under way or another sleeper has the watch.
void Worker::stand_aside() {
  idle_looks_ = any_under_way() ? 0 : idle_looks_ + 1;
  if (idle_looks_ >= kIdleLooks) drop_idle();
  Sleep sleep(*sleepers_);
  bell_.arm(sleep);
  // First it says so, then it looks: who gives up the watch, or lists a flow, reads it afterwards.
  sound_asleep_.store(true);
  const bool sound = !busy() || holder_.load() == Holder::kAsleep;
  if (!sound) sound_asleep_.store(false);
  Error error;
  if (!called_for()) {
    error = sleep.wait({}, Clock::now() + (sound ? Clock::duration(kLongestIdleSleep) : Clock::duration(aside_)));
    aside_ = sound ? kAside : std::min(2 * aside_, kLongestAside);
  }
  sound_asleep_.store(false);
  bell_.disarm(sleep);
  if (!error.ok()) fail_all(error);
}

// Without the lock: a flow that fails comes back here, and gives the thread functions.
void Worker::fail_all(const Error& error) {
  for (const auto& flow : flows()) flow->failed_on_thread(error);
}

// --- Watch

bool Watch::take() {
  auto nobody = Worker::Holder::kNobody;
  if (!held_ && worker_.holder_.load(std::memory_order_relaxed) == nobody) {
    held_ = worker_.holder_.compare_exchange_strong(nobody, Worker::Holder::kAwake);
  }
  return held_;
}

void Watch::give_up() {
  if (!held_) return;
  flows_.clear();
  version_ = 0;
  held_ = false;
  worker_.holder_.store(Worker::Holder::kNobody);
  if (worker_.sound_asleep_.load() && worker_.busy()) worker_.bell_.ring();
}

// Its list is the worker's. False: there is no memory for that.
bool Watch::known() {
  if (version_ == worker_.version_.load()) return true;
  try {
    std::lock_guard lock(worker_.mutex_);
    flows_ = worker_.flows_;
    version_ = worker_.version_.load();
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

bool Watch::under_way() {
  known();
  return std::any_of(flows_.begin(), flows_.end(),
                     [&](const auto& flow) { return flow.get() != own_ && flow->under_way(); });
}

bool Watch::pass(Pass pass) {
  known();
  bool moved = false;
  for (const auto& flow : flows_) {
    if (flow.get() != own_ && flow->under_way()) moved |= flow->try_drive(pass);
  }
  return moved;
}

bool Watch::sleep(Doorbell* bell, Clock::time_point until, Error& error) {
  Sleep sleep(*worker_.sleepers_);
  const bool quiet = arm(sleep, bell);
  if (quiet) error = sleep.wait(watched_, until);
  woke(sleep, bell);
  return quiet;
}

// Flows that are idle, too: whoever starts an operation there does not ring. True: it may sleep.
bool Watch::arm(const Sleep& sleep, Doorbell* bell) {
  armed_ = 0;
  watched_.clear();
  if (held_ && !known()) return false;
  try {
    watched_.reserve(flows_.size() + 1);
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (bell != nullptr) bell->arm(sleep);
  bool moved = false;
  if (own_ != nullptr) {
    moved = own_->arm_own(sleep);
    watched_.push_back(own_->descriptor());
  }
  if (held_) {
    worker_.watch_bell_.arm(sleep);
    for (; armed_ < flows_.size(); ++armed_) {
      Flow& flow = *flows_[armed_];
      if (&flow == own_) continue;
      moved |= flow.arm(sleep);
      watched_.push_back(flow.descriptor());
    }
    worker_.holder_.store(Worker::Holder::kAsleep);
    moved |= version_ != worker_.version_.load();
  }
  if (bell != nullptr) moved |= worker_.called_for();
  return !moved;
}

void Watch::woke(const Sleep& sleep, Doorbell* bell) {
  if (held_) worker_.holder_.store(Worker::Holder::kAwake);
  for (size_t i = 0; i < armed_; ++i) {
    if (flows_[i].get() != own_) flows_[i]->woke(sleep);
  }
  if (held_) worker_.watch_bell_.disarm(sleep);
  if (own_ != nullptr) own_->woke_own(sleep);
  if (bell != nullptr) bell->disarm(sleep);
}

}  // namespace rondo
