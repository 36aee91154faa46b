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
  // An all_gather of the library's own.
  std::shared_ptr<const Plan> gather(Algorithm algorithm);

 private:
  using Key = std::tuple<Collective, Algorithm, int, bool, bool>;  // and root, scales_at_source, coded

  int rank_;
  Topology topology_;
  int chunks_in_flight_;  // a setting that all ranks have alike: equal requests give plans that fit together
  std::map<Key, std::shared_ptr<const Plan>> plans_;  // shared with the calls that are prepared for them
};

}  // namespace rondo
