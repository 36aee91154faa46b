#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "ring/engine/observe/observer.h"
#include "ring/plan/plan.h"

namespace rondo {

// Records what one operation does: its steps, what they moved, and how long it stood still for
// which rank. Callers ask on() first. One thread at a time.
//
// Cost: a clock read for each step and for the end of each wait. The begin of a wait needs one only if the run
// has worked since the last read.
class StepObserver {
 public:
  // observed: nullptr if nobody observes; else it must outlive the operation.
  // number: of the operation. Takes over the clock read of its begin.
  void begin(const Observed* observed, uint64_t number) {
    observed_ = observed != nullptr && observed->on() ? observed : nullptr;
    if (observed_ == nullptr) return;
    record_ = {};
    record_.communicator = observed->communicator;
    record_.number = number;
    const uint64_t begun_at = std::exchange(observed->begun_at, 0);
    record_.begin = begun_at != 0 ? begun_at : Observer::now();
    waiting_ = false;
    awaited_ = -1;
    bytes_ = 0;
    read_at_ = 0;
  }
  bool on() const { return observed_ != nullptr; }

  // The next slice has to wait for this rank of the communicator; -1: for the own sends.
  void awaits(int peer) { awaited_ = peer; }
  // A pass has moved nothing: a wait begins, or goes on.
  void idle() {
    if (waiting_ && awaited_ == wait_.peer) return;
    const uint64_t now = read_at_ != 0 ? read_at_ : Observer::now();
    if (waiting_) end_wait(now);
    waiting_ = true;
    read_at_ = 0;
    wait_ = record_;
    wait_.kind = TraceKind::kWait;
    wait_.begin = now;
    wait_.peer = awaited_;
  }
  // A slice was moved. last: it ends its step in this round. Signals are no steps here.
  void moved(std::span<const Ref> sources, std::span<const Ref> targets, uint64_t bytes, bool last) {
    bytes_ += bytes;
    last &= bytes_ > 0;
    if (waiting_ || last) {
      const uint64_t now = Observer::now();
      if (waiting_) end_wait(now);
      if (last) end_step(sources, targets, now);
      read_at_ = now;
    } else if (bytes > 0) {
      worked();
    }
  }
  // Something took time that is no step: bytes were sent or posted. The next wait must read the clock.
  void worked() { read_at_ = 0; }
  // The place of the next slice.
  void at(uint32_t step, uint64_t round) {
    record_.step = step;
    record_.round = static_cast<uint32_t>(round);
  }
  // The run is done.
  void end() {
    if (waiting_) end_wait(read_at_ = Observer::now());
    observed_->ended_at = read_at_;
    observed_ = nullptr;
  }

 private:
  // The wait is recorded at the place where the run goes on.
  void end_wait(uint64_t now) {
    wait_.end = now;
    wait_.step = record_.step;
    wait_.round = record_.round;
    observed_->observer->waited(wait_);
    waiting_ = false;
  }
  void end_step(std::span<const Ref> sources, std::span<const Ref> targets, uint64_t now) {
    record_.end = now;
    record_.bytes = bytes_;
    record_.kind = TraceKind::kStep;
    // A step has several peers: its record keeps how many sources and targets it had (TraceKind::kStep).
    record_.peer = static_cast<int32_t>((sources.size() << 16) | targets.size());
    observed_->observer->stepped(record_, sources, targets);
    record_.begin = now;
    bytes_ = 0;
  }

  const Observed* observed_ = nullptr;
  TraceRecord record_;  // of the step; begin: when it began
  TraceRecord wait_;
  uint64_t bytes_ = 0;    // of the step so far
  uint64_t read_at_ = 0;  // the last clock read, if nothing has taken time since; else 0
  bool waiting_ = false;
  int awaited_ = -1;
};

}  // namespace rondo
