#include "ring/engine/progress/progress_thread.h"

#include <sched.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "ring/base/caught.h"
#include "ring/base/check.h"
#include "ring/base/log.h"
#include "ring/base/own_thread.h"

namespace rondo {

namespace {

// Static and behind functions: gold links a hidden thread-local variable of another file to offset 0 of the shared
// library's block (binutils 2.40).
thread_local bool calling_functions = false;

// As in progress_engine.cc: the longest sleep, so that deadlines and stalls are noticed.
constexpr std::chrono::milliseconds kLongestSleep{20};
// The longest sleep of a thread that has no engine.
constexpr std::chrono::minutes kLongestIdleSleep{1};

}  // namespace

bool in_end_function() { return calling_functions; }

void refuse_wait_of_this_thread() {
  if (!calling_functions) return;
  throw Exception(ErrorCode::kInvalid, "a function of on_end() must not wait: start calls by their asynchronous forms");
}

ProgressThread::~ProgressThread() {
  RONDO_CHECK(!calling_functions, "a function of on_end() has destroyed the last communicator, and so its own thread");
  stopping_.store(true);
  bell_.ring();
  if (thread_.joinable()) thread_.join();
}

void ProgressThread::start() {
  if (started()) return;
  std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = start_own_thread("rondo-progress", [this] { run(); });
  started_.store(true, std::memory_order_release);
}

void ProgressThread::poke(std::shared_ptr<ProgressEngine> engine, bool asks) {
  {
    std::lock_guard lock(mutex_);
    if (!thread_.joinable()) return;  // nothing has been left to it yet: what is pending, others wait for
    engine->set_served(true);
    if (std::find(engines_.begin(), engines_.end(), engine) == engines_.end()) engines_.push_back(std::move(engine));
  }
  if (asks || !looks_soon_.load()) bell_.ring();
}

void ProgressThread::add_inbox(const std::shared_ptr<ProgressEngine>& engine) {
  std::lock_guard lock(mutex_);
  std::erase_if(inboxes_, [](const auto& inbox) { return inbox.expired(); });
  inboxes_.push_back(engine);
}

bool ProgressThread::read_inboxes(const ProgressEngine* but) {
  bool moved = false;
  for (size_t i = 0;; ++i) {
    std::shared_ptr<ProgressEngine> engine;  // ends without the lock
    {
      std::lock_guard lock(mutex_);
      if (i >= inboxes_.size()) return moved;
      engine = inboxes_[i].lock();
    }
    if (engine && engine.get() != but) moved |= engine->try_drive(Pass::kBeforeSleep);
  }
}

void ProgressThread::forget(const ProgressEngine& engine) {
  std::shared_ptr<ProgressEngine> dropped;  // ends without the lock
  std::lock_guard lock(mutex_);
  std::erase_if(inboxes_, [own = engine.weak_from_this()](const auto& inbox) {
    return !inbox.owner_before(own) && !own.owner_before(inbox);
  });
  const auto found =
      std::find_if(engines_.begin(), engines_.end(), [&](const auto& listed) { return listed.get() == &engine; });
  if (found == engines_.end()) return;
  dropped = std::move(*found);
  engines_.erase(found);
}

void ProgressThread::call(std::unique_ptr<EndCall> call) noexcept {
  {
    std::lock_guard lock(mutex_);
    call->next = nullptr;
    (last_call_ != nullptr ? last_call_->next : first_call_) = call.get();
    last_call_ = call.release();
    ++calls_asked_;
  }
  bell_.ring();
}

void ProgressThread::finish_calls() {
  std::unique_lock lock(mutex_);
  called_.wait(lock, [this, asked = calls_asked_] { return calls_done_ >= asked; });
}

bool ProgressThread::has_functions() {
  std::lock_guard lock(mutex_);
  return first_call_ != nullptr;
}

void ProgressThread::call_functions() {
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
    try {
      call->run();
    } catch (...) {
      // Of an operation without an engine: there is no communicator that could fail.
      Logger().warn("a function of on_end() has thrown: " + caught().message);
    }
  }
  threads_in_end_functions.fetch_sub(1);
  calling_functions = false;
  {
    std::lock_guard lock(mutex_);
    calls_done_ += done;
  }
  called_.notify_all();
}

// Progress engines that claim the progress thread; the others are dropped, and come back by poke().
std::vector<std::shared_ptr<ProgressEngine>> ProgressThread::claimed() {
  using Claim = ProgressEngine::Claim;
  std::vector<std::shared_ptr<ProgressEngine>> dropped;  // ended without the lock: their end functions may be the last
  std::lock_guard lock(mutex_);
  // First it is not served, then the second look: who starts an operation counts it, then asks whether it is served.
  const auto live = std::stable_partition(engines_.begin(), engines_.end(), [](const auto& engine) {
    if (engine->claim() != Claim::kNone) return true;
    engine->set_served(false);
    if (engine->claim() == Claim::kNone) return false;
    engine->set_served(true);
    return true;
  });
  dropped.assign(std::make_move_iterator(live), std::make_move_iterator(engines_.end()));
  engines_.erase(live, engines_.end());
  return engines_;
}

void ProgressThread::run() {
  while (!stopping_.load()) {
    try {
      turn();
    } catch (...) {
      fail_all(caught());
    }
  }
  call_functions();
}

void ProgressThread::turn() {
  using Next = VainPolls::Next;
  call_functions();
  const auto engines = claimed();
  bool left = false, moved = false;
  for (const auto& engine : engines) {
    if (engine->claim() != ProgressEngine::Claim::kLeft) continue;
    left = true;
    aside_ = kAside;
    moved |= engine->try_drive();
  }
  if (moved) {
    polls_.moved();
    return;
  }
  if (!left) {
    polls_.begin();
    return rest(engines);
  }
  if (!polls_.vain()) return;
  const auto now = Clock::now();
  const Next next = polls_.next(now);
  if (next == Next::kYield) {
    sched_yield();
    polls_.yielded(now, Clock::now());
  } else if (next == Next::kSleep) {
    rest(engines);
  }
}

void ProgressThread::fail_all(const Error& error) {
  // Without the lock: an engine that fails pokes this thread, and gives it functions. None leaves the list meanwhile.
  for (size_t i = 0;; ++i) {
    std::shared_ptr<ProgressEngine> engine;
    {
      std::lock_guard lock(mutex_);
      if (i == engines_.size()) return;
      engine = engines_[i];
    }
    engine->failed_on_thread(error);
  }
}

void ProgressThread::rest(const std::vector<std::shared_ptr<ProgressEngine>>& engines) {
  Sleep sleep(*sleepers_);
  bell_.arm(sleep);
  std::vector<std::shared_ptr<ProgressEngine>> armed;
  std::vector<int> watched;
  bool changed = false;
  for (const auto& engine : engines) {
    if (engine->claim() != ProgressEngine::Claim::kLeft) continue;
    armed.push_back(engine);
    changed |= engine->arm(sleep);
    watched.push_back(engine->bell().descriptor());
  }
  const bool looks_soon = armed.size() < engines.size();
  looks_soon_.store(looks_soon);
  Error error;
  if (!changed && !stopping_.load() && !has_functions() && claimed() == engines) {
    const Clock::duration longest = looks_soon        ? Clock::duration(aside_)
                                    : engines.empty() ? Clock::duration(kLongestIdleSleep)
                                                      : Clock::duration(kLongestSleep);
    const auto until = Clock::now() + longest;
    error = sleep.wait(watched, until);
    polls_.slept();
    aside_ = looks_soon ? std::min(2 * aside_, kLongestAside) : kAside;
    if (!looks_soon && Clock::now() >= until) read_inboxes(nullptr);
  }
  looks_soon_.store(false);
  bell_.disarm(sleep);
  for (const auto& engine : armed) engine->woke(sleep);
  if (!error.ok()) fail_all(error);
}

}  // namespace rondo
