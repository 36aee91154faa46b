#include "ring/engine/progress/flow_lease.h"

namespace rondo {

void FlowLease::acquire() {
  while (!state_.try_acquire()) sleep(std::chrono::steady_clock::now() + kLongestSleep, [] { return false; });
}

void FlowLease::ask(Errand& errand) {
  errand.next = errands_.load();
  while (!errands_.compare_exchange_weak(errand.next, &errand)) {
  }
}

void FlowLease::run_errands() {
  Errand* errand = errands_.exchange(nullptr);
  while (errand != nullptr) {
    Errand* const following = errand->next;
    errand->run();
    errand->done.store(true);
    errand = following;
  }
  wake_sleepers();
}

void FlowLease::wake_all() {
  { std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

}  // namespace rondo
