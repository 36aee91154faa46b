#pragma once

#include <chrono>
#include <cstdint>

#include "ring/engine/collective/collective_operation.h"
#include "ring/engine/communicator_context.h"
#include "ring/engine/run/run.h"

namespace rondo {

// Sees to it that a call which does not go on ends in an error that says why: it asks the other ranks what they are in,
// and tells the fabric of links and memory that have failed. Under the lease.
class CallWatch {
 public:
  // context must outlive it.
  explicit CallWatch(CommunicatorContext& context) : context_(context) {}

  // The next call begins.
  void begin() {
    moved_at_ = refused_at_ = began_at_ = {};
    seen_moved_ = 0;
    reported_ = false;
  }
  // The run of the current call does not move any more, and why.
  void report(const CollectiveOperation& current, const RunFailure& failure);
  bool reported() const { return reported_; }
  // Now and then while the current call lasts. moved: grows while it moves.
  void tick(Clock::time_point now, const CollectiveOperation& current, uint64_t moved);
  // The deadline of `late` has passed while `current` is under way.
  void time_out(Clock::time_point now, const CollectiveOperation& current, const CollectiveOperation& late);

 private:
  void refused(const CollectiveOperation& current, int peer, const Error& error);
  void broke(const CollectiveOperation& current, int peer, const Error& error);
  void failed(int peer, ErrorCode code, const std::string& message);
  void ask_others(Clock::time_point now, uint64_t sequence, Ask ask = Ask::kInTurn);
  bool lasts(Clock::time_point now, uint64_t sequence);

  CommunicatorContext& context_;
  uint64_t seen_moved_ = 0;
  Clock::time_point moved_at_{};
  Clock::time_point began_at_{};   // the first look at it
  Clock::time_point cause_due_{};  // when the cause of a call that lasts is asked for next
  Clock::time_point asked_at_{};
  uint64_t asked_sequence_ = 0;     // the operation that they were asked about
  uint64_t overdue_sequence_ = 0;   // the operation that they were asked about after a deadline
  Clock::time_point overdue_at_{};  // and when
  Clock::time_point refused_at_{};  // a run saw another operation than this rank's, or a link that broke
  Error refusal_;
  bool reported_ = false;  // of the current call
};

}  // namespace rondo
