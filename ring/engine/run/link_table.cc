#include "ring/engine/run/link_table.h"

#include "ring/engine/run/slicing.h"

namespace rondo {

LinkTable::LinkTable(const CommunicatorContext& context)
    : context_(context), links_(size_t{context.config.lanes} * context.members.size()) {}

bool LinkTable::take(const Plan& plan) {
  bool complete = true;
  for (uint32_t lane = 0; lane < plan.lanes.size(); ++lane) {
    for (const int peer : plan.peers) {
      std::unique_ptr<Link>& slot = link(lane, peer);
      if (slot) continue;
      slot = context_.fabric->take_link({context_.id, context_.world_rank(peer), static_cast<int>(lane)},
                                        link_shape(context_.config));
      complete &= slot != nullptr;
    }
  }
  return complete;
}

std::span<Link* const> LinkTable::of(const Plan& plan, uint32_t lane) {
  lane_links_.clear();
  for (const int peer : plan.peers) lane_links_.push_back(link(lane, peer).get());
  return lane_links_;
}

void LinkTable::close() {
  for (std::unique_ptr<Link>& slot : links_) slot.reset();
}

}  // namespace rondo
