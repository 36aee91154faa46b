#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ring/engine/progress/operation.h"

namespace rondo {

class Doorbell;
class Flow;
class Sleep;
class Worker;
enum class Pass : uint8_t;

// Looks after the flows under way beside a thread's own, while no other thread does: one thread of a join at a time.
// Lies on the stack of a thread that waits. Nothing is thrown.
class Watch {
 public:
  // own: moved by the thread itself, under its lease; null: none.
  Watch(Worker& worker, Flow* own) : worker_(worker), own_(own) {}
  ~Watch() { give_up(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  bool held() const { return held_; }
  // False: another thread has it.
  bool take();
  void give_up();
  // A flow is under way beside the own one. Requires held().
  bool under_way();
  // A pass over the flows under way beside the own one. True if anything moved. Requires held().
  bool pass(Pass pass);
  // Sleeps until rung for the own flow, with the watch for all flows, and for `bell`, if there is one; until the
  // deadline, or for no reason. False: something moved before it could fall asleep. An error: it cannot sleep any more.
  bool sleep(Doorbell* bell, Clock::time_point until, Error& error);

 private:
  bool known();
  bool arm(const Sleep& sleep, Doorbell* bell);
  void woke(const Sleep& sleep, Doorbell* bell);

  Worker& worker_;
  Flow* const own_;
  bool held_ = false;
  uint32_t version_ = 0;                      // of flows_
  std::vector<std::shared_ptr<Flow>> flows_;  // shared with the worker
  size_t armed_ = 0;                          // as many of them
  std::vector<int> watched_;
};

}  // namespace rondo
