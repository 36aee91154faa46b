#pragma once

#include <chrono>
#include <cstdint>

#include "ring/engine/collective/collective_operation.h"
#include "ring/engine/communicator_context.h"
#include "ring/engine/run/run.h"

namespace rondo {

// Finds out why a collective does not go on, so that it ends in an error that says it. It asks the other ranks
// what they are in, and reports failed links and memory to the fabric. The communicator fails by the fabric,
// with one reason on all ranks. Under the lease.
class CallWatch {
 public:
  // context must outlive it.
  explicit CallWatch(CommunicatorContext& context) : context_(context) {}

  // The run of the current call cannot move any more, for this reason. Each reason is reported once.
  void report(const CollectiveOperation& current, const RunFailure& failure);
  // Called now and then while the current call lasts. moved: grows while it moves; a stall is a time in which
  // it does not.
  void tick(Clock::time_point now, const CollectiveOperation& current, uint64_t moved);
  // The deadline of `late` passed so long ago, while `current` is under way. Fails the communicator with
  // kTimeout after the other ranks had time to answer: the error then names the ranks that have not made the
  // call.
  void time_out(Clock::time_point now, const CollectiveOperation& current, const CollectiveOperation& late,
                Clock::duration by);

 private:
  // What was seen of the current call. A call with another sequence starts anew.
  struct Seen {
    uint64_t sequence = UINT64_MAX;
    uint64_t moved = 0;
    Clock::time_point moved_at{};
    Clock::time_point began_at{};    // the first look at it, after which it counts as lasting
    Clock::time_point cause_due{};   // when the cause of a call that lasts is asked for next
    Clock::time_point refused_at{};  // a run saw another operation than this rank's, or a link that broke
    bool reported = false;
  };

  void look_at(const CollectiveOperation& current) {
    if (seen_.sequence != current.start.sequence) seen_ = {.sequence = current.start.sequence};
  }
  // failed(), broke(): ranks are those of the group; the fabric gets world ranks.
  void refused(const CollectiveOperation& current, const RunFailure& failure);
  void refused(const CollectiveOperation& current, int peer, const Error& error, const std::string& sent);
  uint64_t expected_from(const CheckedCall& call, int peer) const;
  void broke(const CollectiveOperation& current, int peer, const Error& error);
  void failed(int peer, ErrorCode code, const std::string& message);
  void ask_others(Clock::time_point now, uint64_t sequence, Ask ask = Ask::kInTurn);
  bool lasts(Clock::time_point now);

  CommunicatorContext& context_;
  Seen seen_;
  Clock::time_point asked_at_{};
  uint64_t overdue_sequence_ = 0;   // the operation that they were asked about after a deadline
  Clock::time_point overdue_at_{};  // and when
  // What the communicator fails with if no better reason has come by then. Its ranks are world ranks.
  Error refusal_;
};

}  // namespace rondo
