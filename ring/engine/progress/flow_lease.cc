#include "ring/engine/progress/flow_lease.h"

namespace rondo {

void FlowLease::acquire() {
  while (!state_.try_acquire()) sleep(std::chrono::steady_clock::now() + kLongestSleep, [] { return false; });
}

void FlowLease::post(Task& task) {
  task.next = tasks_.load();
  while (!tasks_.compare_exchange_weak(task.next, &task)) {
  }
}

void FlowLease::run_tasks() {
  Task* task = tasks_.exchange(nullptr);
  while (task != nullptr) {
    // Read before the task is done: then its thread may return, and the task is gone.
    Task* const following = task->next;
    task->run();
    task->done.store(true);
    task = following;
  }
  wake_sleepers();
}

void FlowLease::wake_all() {
  // The empty critical section closes a gap: a sleeper has tested its condition under the lock, and does not
  // wait yet. A notification in that gap would be lost.
  { std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

}  // namespace rondo
