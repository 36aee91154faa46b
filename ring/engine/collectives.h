#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "ring/engine/call.h"
#include "ring/engine/driver.h"
#include "ring/engine/group_context.h"
#include "ring/engine/lane_crew.h"
#include "ring/engine/lane_run.h"
#include "ring/engine/one_shot.h"
#include "ring/engine/packing.h"
#include "ring/engine/plans.h"
#include "ring/engine/windows.h"

namespace rondo {

class CollectiveOperation final : public Operation {
 public:
  CheckedCall call;
  uint64_t sequence = 0;
  Plans::Set plans;                // shared with the cache
  std::optional<Packing> packing;  // of an operation of several tensors: call's buffers are its memory

  // For another call, by the one owner left; vectors keep their memory.
  void reuse() { reset(); }

 private:
  friend class Collectives;
  // What runs now. Calls over shared memory begin with what the ranks must know of each other (Windows).
  enum class Phase : uint8_t { kNew, kIntroduction, kMeeting, kBody };
  // What cut_, blocks_, lanes_ and one_shot_ are bound to, so that the same call once more need not bind them again
  // (training does the same calls all the time; binding is more than half of what a small one costs). No plan: nothing.
  struct Shape {
    std::shared_ptr<const Plan> plan;  // Plans::Set::first()
    uint64_t count = 0;
    double scalar = 1;
    DType dtype = DType::kFloat32;
    Op op = Op::kSum;
    uint64_t windows = 0;  // Windows::bound() then, of lanes over windows; else 0
    bool is(const Plans::Set& set, const CheckedCall& checked) const {
      return plan != nullptr && plan == set.first() && count == checked.count && scalar == checked.scalar &&
             dtype == checked.dtype && op == checked.op && !checked.uneven;
    }
  };

  // How the call begins: settled by a meeting, by one shot at once, or else over links.
  bool meets() const { return plans.plan == nullptr; }  // unless such calls are known to go over links
  bool one_shot() const { return plans.plan && plans.plan->algorithm == Algorithm::kOneShot; }
  bool in_island() const { return meets() || one_shot(); }
  // What runs plan_: one_shot_, else lanes_, over windows or links.
  bool runs_one_shot() const { return plan_ && plan_->algorithm == Algorithm::kOneShot; }
  bool runs_over_windows() const { return plan_ && over_windows(plan_->algorithm); }

  Phase phase_ = Phase::kNew;
  std::shared_ptr<const Plan> plan_;
  uint64_t kind_ = 0;  // see fingerprint_of()
  uint64_t fingerprint_ = 0;
  Cut cut_;
  Blocks blocks_;
  std::vector<LaneRun> lanes_;
  OneShotRun one_shot_;
  const WindowBinding* windows_ = nullptr;  // of lanes_ over windows
  Shape bound_;
  bool bound_before_ = false;  // this call has that shape
  bool met_ = false;           // the ranks have met for this call
  bool counted_ = false;       // Driver::added()
};

// The collective operations of one communicator: one after the other, in call order, each on all its lanes.
class Collectives final : public Driver {
 public:
  // lane_threads: that may move lanes beside the driver; those beyond the lanes are not started.
  Collectives(std::shared_ptr<GroupContext> context, std::shared_ptr<Doorbell> bell, std::weak_ptr<Pool> pool,
              Patience patience, uint32_t lane_threads);

  // Puts the operation (call, plan, deadline set) at the end of the queue and numbers it. Does not drive. Calls are
  // serialised by the caller's submission lock.
  void submit(std::shared_ptr<CollectiveOperation> operation);
  // Instead, before any other: the meeting.
  void submit_meeting(std::shared_ptr<CollectiveOperation> operation);
  // The call that `operation` was, once more, if nothing is pending and nobody drives; then run_held() must follow.
  // Under the submission lock; the operation has succeeded, and is the caller's alone.
  bool begin_again(CollectiveOperation& operation);
  // Number of the last call submitted.
  uint64_t last_sequence() const { return last_sequence_; }

  // `peer` (a rank of the group) left after this call; later ones cannot complete. Any thread.
  void peer_left(int peer, uint64_t last_sequence);
  // After the communicator has failed: ends what is pending and closes the links.
  void shut_down();

 protected:
  bool step(Pass pass) override;
  void tick(Clock::time_point now) override;

 private:
  using Phase = CollectiveOperation::Phase;

  void enqueue(std::shared_ptr<CollectiveOperation> operation, uint64_t sequence);
  bool take_next();
  void begin(CollectiveOperation& operation);
  void end_current(const Error* error);
  bool take_links(const Plan& plan);
  bool go_on();
  bool introduce();
  bool meet();
  bool start_body();
  bool start_links(const std::shared_ptr<const Plan>& plan);
  bool start_met();
  bool start_one_shot(const std::shared_ptr<const Plan>& plan);
  void start_lanes(const Binding& binding, std::shared_ptr<const Plan> plan);
  bool refuse(const Exception& exception);
  bool run(Pass pass);
  bool run_lanes(Pass pass, bool& done);
  bool run_one_shot(OneShotRun& one_shot, bool& done);
  void report_failures();
  void report_refused_post(const OneShotRun& one_shot);
  void report_failed_pull(int peer);
  void report_corrupt(int peer, const char* what);
  Binding bind(const Plan& plan) const;
  Windows& windows();
  void call_crew();
  template <typename Action>
  auto without_crew(Action action) {
    return crew_ ? crew_->quietly(action) : action();
  }
  void refused(int peer, const Error& error);
  void finish_current();
  void stop_links();
  bool fail_all(const Error& error);
  void check_stall(Clock::time_point now);
  void time_out(Clock::time_point now);
  void ask_others(Clock::time_point now);
  uint64_t slices_combined();
  std::unique_ptr<Link>& link(uint32_t lane, int peer) {
    return links_[lane * static_cast<size_t>(context_->world()) + static_cast<size_t>(peer)];
  }

  std::shared_ptr<GroupContext> context_;  // shared with the communicator and its message engine
  uint64_t last_sequence_ = kMeetingSequence;

  std::mutex queue_mutex_;
  std::deque<std::shared_ptr<CollectiveOperation>> queue_;
  std::atomic<uint64_t> last_possible_{UINT64_MAX};  // calls beyond it lack a member that has left
  std::atomic<int> left_{-1};

  // Under the lease.
  CollectiveOperation* current_ = nullptr;
  std::shared_ptr<CollectiveOperation> owner_;  // of current_, unless its caller keeps it (begin_again)
  std::vector<std::unique_ptr<Link>> links_;    // by lane and rank; made at first use
  std::vector<Link*> lane_links_;               // scratch of start_lanes()
  std::optional<Windows> windows_;              // made at first use
  uint64_t seen_combined_ = 0;                  // of current_, when it last moved
  Clock::time_point moved_at_{};
  Clock::time_point asked_at_{};
  uint64_t asked_sequence_ = 0;     // the operation that they were asked about
  Clock::time_point refused_at_{};  // a link saw another operation than this rank's
  Error refusal_;
  bool reported_ = false;  // a failed link of the current operation
  uint32_t lane_threads_;
  std::optional<LaneCrew> crew_;  // made at first use; destroyed before what its threads move
};

}  // namespace rondo
