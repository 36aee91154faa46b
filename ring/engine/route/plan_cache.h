#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "ring/engine/call/call.h"
#include "ring/plan/plan.h"
#include "rondo/config.h"

namespace rondo {

// The plans of one communicator, made at first use. One thread at a time.
class PlanCache {
 public:
  PlanCache(int rank, Topology topology, const Config& config);

  // The plan of this algorithm for such a call.
  std::shared_ptr<const Plan> get(const CheckedCall& call, Algorithm algorithm);

 private:
  using Key = std::tuple<Collective, Algorithm, int, bool, bool>;  // and root, scales_at_source, coded

  int rank_;
  Topology topology_;
  int lanes_;
  int chunks_in_flight_;
  std::map<Key, std::shared_ptr<const Plan>> plans_;  // shared with the calls that are prepared for them
};

// The plan by which the ranks of an island exchange cards: a one-shot all_gather.
std::shared_ptr<const Plan> card_plan(int rank, const Topology& topology);

}  // namespace rondo
