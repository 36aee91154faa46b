#pragma once

#include <functional>
#include <string>

#include "ring/engine/route/prepared_call.h"
#include "ring/engine/route/route.h"
#include "ring/engine/route/route_table.h"
#include "ring/engine/route/tuner.h"
#include "ring/plan/choose.h"
#include "rondo/config.h"

namespace rondo {

// Asks and answers for the routes of one communicator, from what is equal on all its ranks from the start. Any thread.
class Router {
 public:
  // can_pull: of the ranks' shared memory.
  Router(int rank, Topology topology, const Config& config, bool can_pull);

  // Fills in what the call may run. Its own wish is `asked`: without a plan for it this throws Exception(kInvalid). The
  // configured algorithm is a wish for the calls that have it.
  void ask(PreparedCall& call) const;
  Route decide(const PreparedCall& call, const RouteTable& table, const Answers& answers) const {
    const auto next = [&] { return table.next(call, terms_); };
    TableFacts facts = table.facts(call, answers);
    facts.next = std::cref(next);  // which takes no memory
    return rondo::decide(call, terms_, facts, answers);
  }
  // "all_reduce of 8 bytes among 2 ranks: one_shot (cheapest, 1 us by the cost model)"
  std::string describe(const PreparedCall& call, const Route& route) const;
  const RouteTerms& terms() const { return terms_; }
  // Whether the ranks' times are by one clock.
  Clocks clocks() const { return topology_.one_host() ? Clocks::kOne : Clocks::kOfHosts; }

  // By the cost model; 0 where it has no estimate.
  uint64_t predicted_ns(const PreparedCall& call, Algorithm algorithm) const;

 private:
  Algorithm choose(const PreparedCall& call, Algorithm asked, RouteReason& why) const;
  Alternatives ways_of(const PreparedCall& call, Algorithm asked) const;
  double estimated_us(const PreparedCall& call, Algorithm algorithm) const;
  Algorithm choose_coded(const PreparedCall& call) const;
  Algorithm choose_in_order(const PreparedCall& call) const;
  // Why no plan of the algorithm can run the call, in words; "": one can.
  std::string obstacle(const PreparedCall& call, Algorithm algorithm) const;
  bool fits(const PreparedCall& call, Algorithm algorithm) const;
  Algorithm configured_for(const PreparedCall& call) const;

  // For messages only: no choice depends on it.
  int rank_;
  Topology topology_;
  Algorithm configured_;
  uint64_t staged_bytes_;  // in a rank's staging memory
  // RONDO_FOLD: whether all ways of a call must fold in the same order (kAlike).
  Chooser::Folds folds_;
  RouteTerms terms_;
  Chooser chooser_;
};

}  // namespace rondo
