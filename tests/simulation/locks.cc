#include <algorithm>

#include "tests/simulation/machine.h"

namespace rondo::testing::sim {

Locks& locks() {
  static Locks all;
  return all;
}

// One that was held by a process that has ended is free: the library has such for what belongs to a program.
bool Locks::taken(const Held& held) { return held.by != nullptr && !held.of->ended; }

bool Locks::try_lock(void* mutex, bool recursive) {
  Fiber* const self = Machine::thread();
  Held& held = held_[mutex];
  const bool again = held.by == self;
  if (again ? !recursive : taken(held)) return false;
  held.times = again ? held.times + 1 : 1;
  held.by = self;
  held.of = Machine::process();
  return true;
}

void Locks::lock(void* mutex, bool recursive) {
  Machine& machine = *Machine::current();
  if (machine.random().below(32) == 0) machine.yield();
  while (!try_lock(mutex, recursive)) {
    ++held_[mutex].wanted;
    machine.wait([this, mutex] { return !taken(held_[mutex]); }, kNever);
    --held_[mutex].wanted;
  }
}

void Locks::unlock(void* mutex) {
  const auto found = held_.find(mutex);
  if (found == held_.end() || found->second.by != Machine::thread()) return;  // locked before the simulation
  if (--found->second.times > 0) return;
  found->second.by = nullptr;
  if (found->second.wanted == 0) {
    held_.erase(found);
  } else {
    Machine::current()->changed(*Machine::process());
  }
}

bool Locks::wait(void* condition, void* mutex, Time deadline) {
  Machine& machine = *Machine::current();
  Waiter self{Machine::process(), false};
  waiting_[condition].push_back(&self);
  unlock(mutex);
  machine.wait([&self] { return self.notified; }, deadline);
  const auto queue = waiting_.find(condition);
  if (!self.notified) queue->second.erase(std::find(queue->second.begin(), queue->second.end(), &self));
  if (queue != waiting_.end() && queue->second.empty()) waiting_.erase(queue);
  lock(mutex, false);
  return self.notified;
}

void Locks::notify(void* condition, bool all) {
  const auto found = waiting_.find(condition);
  if (found == waiting_.end()) return;
  while (!found->second.empty()) {
    Waiter* const waiter = found->second.front();
    found->second.pop_front();
    waiter->notified = true;
    Machine::current()->changed(*waiter->of);
    if (!all) return;
  }
}

}  // namespace rondo::testing::sim
