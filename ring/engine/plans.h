#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "ring/base/log.h"
#include "ring/engine/call.h"
#include "ring/plan/build.h"
#include "ring/plan/choose.h"
#include "ring/plan/plan.h"
#include "rondo/config.h"

namespace rondo {

// Chooses and keeps the plans of one communicator. One thread at a time (the submission lock), but for choose().
class Plans {
 public:
  // Throws Exception(kInvalid) if config.cost_model is none.
  Plans(int rank, Topology topology, const Config& config);

  // What kAuto comes to for this call, of buffers that are not registered; the same on every rank. `asked` is the
  // call's own wish: without a builder for it this throws Exception(kInvalid). The configured algorithm is a wish for
  // the collectives that have it.
  Algorithm choose(const CheckedCall& call, Algorithm asked) const;
  // The same where the buffers of all ranks are registered.
  Algorithm choose_registered(const CheckedCall& call, Algorithm asked) const;
  // The same, remembered from one call to the next of its kind, and shown (RONDO_DEBUG=info) when it changes for calls
  // of about this size.
  Algorithm settle(const CheckedCall& call, Algorithm asked);
  // What a call runs. `algorithm` as settle() gave it for `asked`.
  struct Set {
    std::shared_ptr<const Plan> plan;  // nullptr: one of these, settled when the ranks have met (Windows)
    std::shared_ptr<const Plan> registered;
    std::shared_ptr<const Plan> links;  // where buffers are not registered; nullptr: one of these
    std::shared_ptr<const Plan> staged, pull;
    std::shared_ptr<const Plan> one_shot;  // for small calls; nullptr: there is none

    // Names the set: no other has it.
    const std::shared_ptr<const Plan>& first() const { return plan ? plan : links ? links : staged; }
  };
  const Set& get(const CheckedCall& call, Algorithm asked, Algorithm algorithm);

 private:
  void show(const CheckedCall& call, uint64_t bytes, Algorithm algorithm);
  bool asks_for_registered(const CheckedCall& call, Algorithm asked, Algorithm chosen) const;

  using Key = std::tuple<Collective, Algorithm, int, bool, bool>;  // and root, scale_at_source, asks_for_registered
  int rank_;
  Topology topology_;
  Algorithm configured_;
  int lanes_;
  void check_windows(const CheckedCall& call, Algorithm asked) const;
  std::shared_ptr<const Plan> build(const CheckedCall& call, Algorithm algorithm) const;
  Set build_set(const CheckedCall& call, Algorithm algorithm, bool meets) const;

  int ahead_;
  Chooser chooser_;
  Logger log_;
  // What settle() answered last, and to what.
  struct Question {
    Collective collective = Collective::kAllReduce;
    Algorithm asked = Algorithm::kAuto;
    bool scale_at_source = false;
    bool uneven = false;
    uint64_t bytes = 0;
    bool operator==(const Question&) const = default;
  } question_;
  Algorithm answer_ = Algorithm::kAuto;
  // What was shown last, by collective and power of two of bytes.
  std::array<std::array<Algorithm, 65>, kCollectives> shown_{};
  std::map<Key, Set> plans_;  // shared with the operations under way
  Key last_key_{};
  const Set* last_ = nullptr;
};

}  // namespace rondo
