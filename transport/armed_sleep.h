#pragma once

#include <chrono>

#include "rondo/error.h"
#include "transport/doorbell.h"

namespace rondo {

// A thread's sleep on one doorbell, which is armed while this lives. The caller looks once more at what it waits for
// between the constructor and wait(): what changes after that look rings. Threads of the engine that wait sleep on
// several doorbells (ring/engine/progress/watch.h).
class ArmedSleep {
 public:
  ArmedSleep(Doorbell& bell, Sleepers& sleepers) : bell_(bell), sleep_(sleepers) { bell_.arm(sleep_); }
  ~ArmedSleep() { bell_.disarm(sleep_); }
  ArmedSleep(const ArmedSleep&) = delete;
  ArmedSleep& operator=(const ArmedSleep&) = delete;

  // Until the doorbell is rung, a watched descriptor changes, or the deadline. Disarms.
  [[nodiscard]] Error wait(std::chrono::steady_clock::time_point deadline) {
    const int watched[] = {bell_.descriptor()};
    Error error = sleep_.wait(watched, deadline);
    bell_.disarm(sleep_);
    bell_.take_events();
    return error;
  }

 private:
  Doorbell& bell_;
  Sleep sleep_;
};

}  // namespace rondo
