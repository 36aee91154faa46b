#include "ring/engine/progress/watch.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

#include "ring/engine/progress/flow.h"
#include "ring/engine/progress/worker.h"

namespace rondo {

bool Watch::take() {
  if (!held_) held_ = worker_.watch_.take();
  return held_;
}

void Watch::give_up() {
  if (!held_) return;
  held_ = false;
  // Given up first, then the look at the flows. A thread that starts an operation makes it visible first, then
  // looks whether there is a watch. One of the two sees the other.
  worker_.watch_.give_up();
  const auto idle = [](const auto& flow) { return flow->idle(); };
  if (!known() || !std::all_of(flows_.begin(), flows_.end(), idle)) worker_.wake_if_left();
  flows_.clear();
  version_ = 0;
}

// Takes the worker's list of flows over, if that has changed. False: there is no memory for the copy.
bool Watch::known() {
  if (version_ == worker_.version_.load()) return true;
  std::vector<std::shared_ptr<Flow>> before;  // ended without the lock: their ends may come back to the worker
  try {
    std::lock_guard lock(worker_.mutex_);
    std::vector<std::shared_ptr<Flow>> now = worker_.flows_;
    before = std::exchange(flows_, std::move(now));
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

// The sleeper is lent for this one sleep. woke() disarms in any case, also what arm() did before something
// moved.
bool Watch::sleep(Doorbell* bell, Clock::time_point until, Error& error) {
  Sleep sleep(*worker_.sleepers_);
  bool quiet = arm(sleep, bell);
  try {
    if (quiet) error = sleep.wait(watched_, until);
  } catch (const std::bad_alloc&) {  // nothing passes a wait for what uses the caller's memory
    quiet = false;
  }
  woke(sleep, bell);
  return quiet;
}

// Arms all doorbells, then looks once more at what they announce. True: nothing has moved, and the thread may
// sleep.
//
// Idle flows are armed, too: a thread that starts an operation on a listed flow does not ring. Everything that
// needs memory comes first, so nothing is left armed.
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
    watched_.push_back(own_->bell()->descriptor());
  }
  if (held_) {
    worker_.watch_bell_.arm(sleep);
    for (; armed_ < flows_.size(); ++armed_) {
      Flow& flow = *flows_[armed_];
      if (&flow == own_) continue;
      moved |= flow.arm(sleep);
      watched_.push_back(flow.bell()->descriptor());
    }
    // Stored before the last look at the list's version. A thread that lists a flow changes the version, then
    // rings the watch bell.
    worker_.watch_.fall_asleep();
    moved |= version_ != worker_.version_.load();
  }
  if (bell != nullptr) moved |= worker_.called_for();
  return !moved;
}

// The watch counts as awake again before the doorbells are disarmed: a thread that finds a bell without a
// sleeper then finds the watch awake.
void Watch::woke(const Sleep& sleep, Doorbell* bell) {
  if (held_) worker_.watch_.wake();
  for (size_t i = 0; i < armed_; ++i) {
    if (flows_[i].get() != own_) flows_[i]->woke(sleep);
  }
  if (held_) worker_.watch_bell_.disarm(sleep);
  if (own_ != nullptr) own_->woke_own(sleep);
  if (bell != nullptr) bell->disarm(sleep);
}

}  // namespace rondo
