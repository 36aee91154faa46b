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

// The watch: moves the flows that are under way beside a thread's own. One thread of a join has it at a time,
// so waiting threads do not all poll all flows. It lies on the stack of a thread that waits, or of the
// worker's. Its holder alone calls it. Nothing is thrown: an operation may lie on that same stack.
class Watch {
 public:
  // own: the flow that the thread moves itself, under its lease; null: none. Both must outlive this object.
  Watch(Worker& worker, Flow* own) : worker_(worker), own_(own) {}
  ~Watch() { give_up(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  bool held() const { return held_; }
  // Takes the watch. False: another thread has it. True at once if this object has it.
  bool take();
  // Gives the watch back, and wakes the worker's thread if a flow is under way that no thread looks after then.
  void give_up();
  // A flow is under way beside the own one. Requires held().
  bool under_way();
  // A pass over the flows under way beside the own one. True if anything moved. Requires held().
  bool pass(Pass pass);
  // Sleeps until the deadline, until rung, or for no reason. It is rung for the own flow, for `bell` if there
  // is one, and with the watch for all flows. False: something moved before it could fall asleep. An error:
  // this process cannot sleep any more, so polling is all that is left.
  bool sleep(Doorbell* bell, Clock::time_point until, Error& error);

 private:
  // Takes the worker's list over if it has changed.
  bool known();
  bool arm(const Sleep& sleep, Doorbell* bell);
  void woke(const Sleep& sleep, Doorbell* bell);

  Worker& worker_;
  Flow* const own_;
  bool held_ = false;
  uint32_t version_ = 0;                      // of the worker's list that flows_ is a copy of
  std::vector<std::shared_ptr<Flow>> flows_;  // shared: a flow may leave the worker's list in a pass over it
  size_t armed_ = 0;                          // the first so many of them are armed
  std::vector<int> watched_;  // the armed flows' descriptors; its memory is taken before the first is armed
};

}  // namespace rondo
