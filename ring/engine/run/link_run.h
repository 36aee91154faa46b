#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ring/engine/run/lane_crew.h"
#include "ring/engine/run/lane_run.h"
#include "ring/engine/run/link_table.h"
#include "ring/engine/run/run.h"

namespace rondo {

// The threads that help with the lanes of large operations of one communicator; started at first use. Under the lease.
class LaneHelp {
 public:
  LaneHelp(uint32_t lanes, uint32_t threads, WaitPolicy policy, std::shared_ptr<Doorbell> bell);
  // nullptr: there are none.
  LaneCrew* crew();
  void stop() { crew_.reset(); }

 private:
  uint32_t lanes_;
  uint32_t threads_;
  WaitPolicy policy_;
  std::shared_ptr<Doorbell> bell_;  // shared with the engine
  std::optional<LaneCrew> crew_;
};

// Runs a plan over links.
class LinkRun final : public Run {
 public:
  // What is referred to must outlive it.
  LinkRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, const CommunicatorContext& context,
          LinkTable& links, LaneHelp& help);

  bool ready() override { return bound_ || links_.take(*plan_); }
  void start(const RunStart& start) override;
  bool progress(Pass pass) override;
  bool done() const override { return done_; }
  uint64_t moved() override;
  RunFailure failure() override;
  WireNote not_finite() override;
  void end() override;

 private:
  // Calls `action` while no helper touches the lanes.
  template <typename Action>
  auto without_help(Action action) {
    return crew_ != nullptr ? crew_->quietly(action) : action();
  }

  std::shared_ptr<const Plan> plan_;  // shared with the cache
  LinkTable& links_;
  LaneHelp& help_;
  bool helped_;  // large enough for it
  Slicing slicing_;
  Blocks blocks_;
  Binding binding_;
  std::vector<LaneRun> lanes_;
  LaneCrew* crew_ = nullptr;  // that has the lanes now
  bool bound_ = false;        // the lanes are
  bool done_ = false;
};

}  // namespace rondo
