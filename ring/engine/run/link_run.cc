#include "ring/engine/run/link_run.h"

#include <utility>

#include "ring/engine/call/slicing.h"
#include "ring/engine/run/lanes.h"

namespace rondo {

LinkRun::LinkRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, const CommunicatorContext& context,
                 LinkTable& links)
    : plan_(std::move(plan)),
      links_(links),
      slicing_(choose_slicing(call, *plan_, context.config, context.topology)),
      blocks_(lay_out_blocks(call, *plan_, slicing_)),
      binding_(binding_of(call, *plan_, blocks_, slicing_)),
      lanes_(plan_->lanes.size()) {
  binding_.observed = &context.observed;
}

void LinkRun::start(const RunStart& start) {
  bind_operation(binding_, start);
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    bound_ ? lanes_[lane].start_again(binding_) : lanes_[lane].start(binding_, lane, links_.of(*plan_, lane));
  }
  bound_ = true;
  done_ = false;
}

bool LinkRun::progress(Pass pass) {
  const LanesProgress progress = progress_lanes(lanes_, pass);
  done_ = progress.done;
  return progress.moved;
}

uint64_t LinkRun::moved() { return slices_combined(lanes_); }
RunFailure LinkRun::failure() { return failure_of_lanes(lanes_, *plan_); }
WireNote LinkRun::not_finite() { return not_finite_of_lanes(lanes_); }

}  // namespace rondo
