#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "ring/base/config.h"
#include "ring/engine/call.h"
#include "ring/plan/build.h"
#include "ring/plan/plan.h"

namespace rondo {

// Chooses and keeps the plans of one communicator. One thread at a time (the submission lock).
class Plans {
 public:
  Plans(int rank, Topology topology, const Config& config);

  // What kAuto comes to for this call; the same on every rank. `asked` is the call's own wish: without a builder for it
  // this throws Exception(kInvalid). The configured algorithm is a wish for the collectives that have it.
  Algorithm choose(const CheckedCall& call, Algorithm asked) const;
  // `algorithm` as choose() gave it.
  std::shared_ptr<const Plan> get(const CheckedCall& call, Algorithm algorithm);

 private:
  using Key = std::tuple<Collective, Algorithm, int, bool>;  // and root, scale_at_source
  int rank_;
  Topology topology_;
  Algorithm configured_;
  int lanes_;
  int ahead_;
  std::map<Key, std::shared_ptr<const Plan>> plans_;  // shared with the operations under way
  Key last_key_{};
  std::shared_ptr<const Plan> last_;
};

}  // namespace rondo
