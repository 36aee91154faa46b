#pragma once

#include <functional>
#include <string>

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

  // The question of a call of which all but `algorithm` and what follows is filled in. `asked` is the call's own wish:
  // without a plan for it this throws Exception(kInvalid). The configured algorithm is a wish for the calls that have
  // it.
  RouteQuestion ask(RouteQuestion call, Algorithm asked) const;
  Route decide(const RouteQuestion& question, const RouteTable& table, const Answers& answers) const {
    const auto next = [&] { return table.next(question, terms_); };
    TableFacts facts = table.facts(question, answers);
    facts.next = std::cref(next);  // which takes no memory
    return rondo::decide(question, terms_, facts, answers);
  }
  // "all_reduce of 8 bytes among 2 ranks: one_shot (cheapest, 1 us by the cost model)"
  std::string describe(const RouteQuestion& question, const Route& route) const;
  const RouteTerms& terms() const { return terms_; }
  // Whether the ranks' times are by one clock.
  Clocks clocks() const { return topology_.one_host() ? Clocks::kOne : Clocks::kOfHosts; }

  // By the cost model; 0 where it has no estimate.
  uint64_t predicted_ns(const RouteQuestion& question, Algorithm algorithm) const;

  // For a call of the library's own, on memory that nobody registered, by a name that is no kWindow: whatever is
  // configured, it must not be refused.
  Algorithm for_plain_buffers() const;

 private:
  Algorithm choose(const RouteQuestion& call, Algorithm asked, RouteReason& why) const;
  Alternatives ways_of(const RouteQuestion& call, Algorithm asked) const;
  Algorithm choose_coded(const RouteQuestion& call) const;
  void check(const RouteQuestion& call, Algorithm asked) const;

  int rank_;
  Topology topology_;
  Algorithm configured_;
  Chooser::Folds folds_;
  RouteTerms terms_;
  Chooser chooser_;
};

}  // namespace rondo
