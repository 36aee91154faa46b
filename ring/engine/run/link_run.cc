#include "ring/engine/run/link_run.h"

#include <utility>

#include "ring/engine/call/slicing.h"
#include "ring/engine/run/lanes.h"

namespace rondo {
namespace {

// Smaller operations are over before a helper is awake (some 50 us).
constexpr uint64_t kHelpedBytes = 1024 * 1024;

}  // namespace

LaneHelp::LaneHelp(uint32_t lanes, uint32_t threads, WaitPolicy policy, std::shared_ptr<Doorbell> bell)
    : lanes_(lanes), threads_(threads), policy_(policy), bell_(std::move(bell)) {}

LaneCrew* LaneHelp::crew() {
  if (threads_ == 0) return nullptr;
  if (!crew_) crew_.emplace(lanes_, threads_, policy_, bell_);
  return &*crew_;
}

LinkRun::LinkRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, const CommunicatorContext& context,
                 LinkTable& links, LaneHelp& help)
    : plan_(std::move(plan)),
      links_(links),
      help_(help),
      helped_(call.total_bytes(context.world()) >= kHelpedBytes),
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
  crew_ = helped_ ? help_.crew() : nullptr;
  if (crew_ != nullptr) crew_->begin(lanes_);
}

bool LinkRun::progress(Pass pass) {
  if (crew_ != nullptr) {
    const LaneCrew::Progress progress = crew_->pass(landing_of(pass));
    done_ = progress.done;
    return progress.moved;
  }
  const LanesProgress progress = progress_lanes(lanes_, pass);
  done_ = progress.done;
  return progress.moved;
}

uint64_t LinkRun::moved() {
  return without_help([this] { return slices_combined(lanes_); });
}

RunFailure LinkRun::failure() {
  return without_help([this] { return failure_of_lanes(lanes_, *plan_); });
}

WireNote LinkRun::not_finite() {
  return without_help([this] { return not_finite_of_lanes(lanes_); });
}

void LinkRun::end() {
  if (crew_ != nullptr) std::exchange(crew_, nullptr)->end();
}

}  // namespace rondo
