#pragma once

#include <memory>
#include <vector>

#include "ring/engine/run/lane_run.h"
#include "ring/engine/run/link_table.h"
#include "ring/engine/run/run.h"

namespace rondo {

// Runs a plan over links.
class LinkRun final : public Run {
 public:
  // What is referred to must outlive it.
  LinkRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, const CommunicatorContext& context,
          LinkTable& links);

  bool ready() override { return bound_ || links_.take(*plan_); }
  void start(const RunStart& start) override;
  bool progress(Pass pass) override;
  bool done() const override { return done_; }
  uint64_t moved() override;
  RunFailure failure() override;
  WireNote not_finite() override;

 private:
  std::shared_ptr<const Plan> plan_;  // shared with the cache
  LinkTable& links_;
  Slicing slicing_;
  Blocks blocks_;
  Binding binding_;
  std::vector<LaneRun> lanes_;
  bool bound_ = false;  // the lanes are
  bool done_ = false;
};

}  // namespace rondo
