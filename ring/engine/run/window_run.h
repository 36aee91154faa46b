#pragma once

#include <memory>
#include <vector>

#include "ring/engine/run/bound_windows.h"
#include "ring/engine/run/lane_run.h"
#include "ring/engine/run/run.h"

namespace rondo {

// Runs a plan over windows: lanes over the memory of the island, whose ranks meet by the channel.
class WindowRun final : public Run {
 public:
  // round_bytes: of a rank, at most in one round. What is referred to must outlive it.
  WindowRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, uint64_t round_bytes,
            const CommunicatorContext& context, IslandMemory& island, const std::vector<Card>& cards);

  bool ready() override;
  void start(const RunStart& start) override;
  bool progress(Pass pass) override;
  bool done() const override { return done_; }
  uint64_t moved() override;
  RunFailure failure() override;
  void end() override { windows_.release(); }

 private:
  const CheckedCall& call_;
  std::shared_ptr<const Plan> plan_;  // shared with the cache
  const std::vector<Card>& cards_;    // of the call that runs next
  Slicing slicing_;
  Blocks blocks_;
  BoundWindows windows_;
  Binding binding_;
  std::vector<LaneRun> lanes_;
  bool bound_ = false;  // the lanes are
  bool done_ = false;
};

}  // namespace rondo
