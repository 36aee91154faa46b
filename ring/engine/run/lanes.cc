#include "ring/engine/run/lanes.h"

namespace rondo {

Binding binding_of(const CheckedCall& call, const Plan& plan, const Blocks& blocks, const Slicing& slicing) {
  Binding binding;
  binding.plan = &plan;
  binding.blocks = &blocks;
  binding.slicing = slicing;
  binding.combine = {call.dtype, call.op, call.scalar, static_cast<uint32_t>(plan.world)};
  binding.element_bytes = dtype_bytes(call.dtype);
  binding.wire.format = call.wire;
  binding.pairwise = call.uneven && call.shared_counts == 0;
  return binding;
}

uint64_t slices_combined(std::span<const LaneRun> lanes) {
  uint64_t sum = 0;
  for (const LaneRun& lane : lanes) sum += lane.combined();
  return sum;
}

WireNote not_finite_of_lanes(std::span<const LaneRun> lanes) {
  WireNote note;
  for (const LaneRun& lane : lanes) note = earlier(note, lane.not_finite());
  return note;
}

RunFailure failure_of_lanes(std::span<const LaneRun> lanes, const Plan& plan) {
  using Kind = RunFailure::Kind;
  for (const LaneRun& lane : lanes) {
    if (lane.failed_pull() >= 0) return {Kind::kUnreadable, lane.failed_pull()};
    if (lane.failed_barrier() >= 0) {
      return {Kind::kCorrupt, lane.failed_barrier(), nullptr, 0, "an arrival at a barrier that cannot be"};
    }
    if (lane.closed_owner() >= 0) return {Kind::kClosed, lane.closed_owner()};
    const int index = lane.failed_link();
    if (index >= 0) return {Kind::kLink, plan.peers[static_cast<size_t>(index)], lane.link_error(index)};
  }
  return {};
}

}  // namespace rondo
