#include "ring/engine/run/window_run.h"

#include <utility>

#include "ring/engine/call/slicing.h"
#include "ring/engine/run/lanes.h"

namespace rondo {
namespace {

// A result of this size has left the last-level cache when it is read (docs/tuning.md, "Stores that another core
// reads").
constexpr uint64_t kStreamBytes = 16 * 1024 * 1024;

}  // namespace

WindowRun::WindowRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, uint64_t round_bytes,
                     const CommunicatorContext& context, IslandMemory& island, const std::vector<Card>& cards)
    : call_(call),
      plan_(std::move(plan)),
      cards_(cards),
      slicing_(choose_window_slicing(call, *plan_, round_bytes)),
      blocks_(lay_out_blocks(call, *plan_, slicing_)),
      windows_(context, island),
      binding_(binding_of(call, *plan_, blocks_, slicing_)),
      lanes_(plan_->lanes.size()) {
  binding_.observed = &context.observed;
  binding_.windows = &windows_.binding();
  binding_.streams = call.total_bytes(context.world()) >= kStreamBytes;
}

bool WindowRun::ready() {
  const BoundWindows::Bound bound = windows_.bind(call_, *plan_, slicing_, cards_);
  if (bound != BoundWindows::Bound::kAsBefore) bound_ = false;
  return bound != BoundWindows::Bound::kNotYet;
}

void WindowRun::start(const RunStart& start) {
  bind_operation(binding_, start);
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    bound_ ? lanes_[lane].start_again(binding_) : lanes_[lane].start(binding_, lane, {});
  }
  bound_ = true;
  done_ = false;
}

bool WindowRun::progress(Pass pass) {
  const LanesProgress progress = progress_lanes(lanes_, pass);
  done_ = progress.done;
  return progress.moved;
}

uint64_t WindowRun::moved() { return slices_combined(lanes_); }
RunFailure WindowRun::failure() { return failure_of_lanes(lanes_, *plan_); }

}  // namespace rondo
