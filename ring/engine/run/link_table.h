#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ring/engine/communicator_context.h"
#include "ring/plan/plan.h"
#include "transport/link.h"

namespace rondo {

// The links of one communicator's collectives, by lane and rank; made at first use and kept. Under the lease.
class LinkTable {
 public:
  explicit LinkTable(const CommunicatorContext& context);

  // True once every link of the plan is there; asks for those that are not.
  bool take(const Plan& plan);
  // The links of a lane to the plan's peers, in their order. Requires take(). Valid until the next call.
  std::span<Link* const> of(const Plan& plan, uint32_t lane);
  void close();

 private:
  std::unique_ptr<Link>& link(uint32_t lane, int peer) {
    return links_[lane * static_cast<size_t>(context_.world()) + static_cast<size_t>(peer)];
  }

  const CommunicatorContext& context_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<Link*> lane_links_;  // of()
};

}  // namespace rondo
