// Routes are chosen alike on all ranks, whatever each of them measures and whoever is ahead: the engine's decisions,
// without its threads.
#include "ring/engine/route/route.h"

#include <doctest/doctest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ring/engine/route/route_table.h"
#include "ring/engine/route/router.h"
#include "rondo/error.h"
#include "tests/support/random.h"

namespace rondo::testing {
namespace {

using Next = Route::Next;

Topology island_of(int world) {
  Topology topology;
  topology.host.assign(static_cast<size_t>(world), 0);
  topology.island.assign(static_cast<size_t>(world), 0);
  return topology;
}

// One call as the program makes it on all ranks: the buffers are each rank's own business.
struct PlannedCall {
  RouteQuestion question;  // but for what ask() fills in
  Algorithm asked = Algorithm::kAuto;
  std::vector<bool> registered;  // by rank
  bool readable = true;          // the kernel lets ranks read these buffers
};

// What a rank tells the others in one exchange.
struct Told {
  bool registered = false;
  bool reads = false;
  uint64_t took_ns = 0;
};

// A rank of the engine, but for the bytes: decides, takes part in exchanges, and goes on to the next call.
class SimulatedRank {
 public:
  SimulatedRank(int rank, const Router& router) : rank_(rank), router_(router) {}

  // One step of the current call. `exchanges[i]`: what ranks have told in exchange i; this rank adds its part, and goes
  // on when all are there. False: it must wait.
  bool step(const PlannedCall& call, std::vector<std::vector<Told>>& exchanges, int world, uint64_t took_ns) {
    const RouteQuestion question = router_.ask(call.question, call.asked);
    if (!told_) {
      if (!asked_) route_ = router_.decide(question, table_, nullptr);
      if (route_.next == Next::kRun || route_.next == Next::kRefuse) return end(question, took_ns);
      tell(call, exchanges);
    }
    const std::vector<Told>& exchange = exchanges[exchange_];
    if (exchange.size() < static_cast<size_t>(world)) return false;
    learn(call, question, exchange);
    return true;
  }
  size_t calls() const { return routes.size(); }

  std::vector<Route> routes;  // of the calls that have begun
  std::vector<uint32_t> versions;
  RouteTable table_;

 private:
  void tell(const PlannedCall& call, std::vector<std::vector<Told>>& exchanges) {
    if (exchanges.size() <= exchange_) exchanges.resize(exchange_ + 1);
    Told told;
    told.registered = call.registered[static_cast<size_t>(rank_)];
    told.reads = route_.next == Next::kTryPull && call.readable;
    told.took_ns = route_.next == Next::kExchangeCards ? took_ns_ : 0;
    exchanges[exchange_].push_back(told);
    told_ = true;
  }

  void learn(const PlannedCall&, const RouteQuestion& question, const std::vector<Told>& exchange) {
    uint64_t slowest = 0;
    bool reads = true, all = true;
    for (const Told& told : exchange) {
      slowest = std::max(slowest, told.took_ns);
      reads = reads && told.reads;
      all = all && told.registered;
    }
    facts_.plain = all ? -1 : 0;  // which rank it is decides nothing
    if (route_.next == Next::kTryPull) {
      facts_.readable = reads;
      table_.tried_pull(question, facts_);
    } else {
      table_.exchanged(slowest);
    }
    route_ = router_.decide(question, table_, &facts_);
    asked_ = true;
    told_ = false;
    ++exchange_;
  }

  bool end(const RouteQuestion& question, uint64_t took_ns) {
    versions.push_back(table_.version());
    if (route_.next == Next::kRun) table_.began(question, route_);
    if (route_.timed) took_ns_ = took_ns;
    routes.push_back(route_);
    facts_ = {};
    asked_ = false;
    return true;
  }

  int rank_;
  const Router& router_;
  Route route_;
  BufferFacts facts_;
  bool asked_ = false;  // facts_ are those of the current call
  bool told_ = false;
  size_t exchange_ = 0;
  uint64_t took_ns_ = 0;
};

PlannedCall random_call(Random& random, int world) {
  constexpr uint64_t kBytes[] = {0, 8, 8192, 65'536, 65'537, 100'000, 262'144, 300'000, 1 << 20, 1 << 24};
  constexpr Algorithm kAsked[] = {Algorithm::kWindow, Algorithm::kStaged, Algorithm::kPull, Algorithm::kRegistered,
                                  Algorithm::kRing};
  PlannedCall call;
  call.question.collective = static_cast<Collective>(random.below(8));
  call.question.bytes = kBytes[random.below(std::size(kBytes))];
  call.question.scales_at_source = collective_reduces(call.question.collective) && random.below(8) == 0;
  call.question.even = random.below(8) != 0;
  if (!call.question.even && call.question.collective == Collective::kAllReduce) call.question.even = true;
  if (random.below(4) == 0) call.asked = kAsked[random.below(std::size(kAsked))];
  const uint64_t kind = random.below(3);
  for (int rank = 0; rank < world; ++rank) {
    call.registered.push_back(kind == 0 || (kind == 1 && random.below(2) == 0));
  }
  call.readable = random.below(50) != 0;
  return call;
}

// Runs the calls on all ranks, which come forward in any order; returns them.
std::vector<SimulatedRank> simulate(const std::vector<PlannedCall>& calls, const Router& router, int world,
                                    Random& random) {
  std::vector<SimulatedRank> ranks;
  for (int rank = 0; rank < world; ++rank) ranks.emplace_back(rank, router);
  std::vector<std::vector<Told>> exchanges;
  int waiting = 0;
  while (true) {
    SimulatedRank& rank = ranks[random.below(static_cast<uint64_t>(world))];
    const size_t at = rank.calls();
    if (at < calls.size() && rank.step(calls[at], exchanges, world, 1 + random.below(1'000'000))) {
      waiting = 0;
    } else {
      ++waiting;
    }
    const bool all = std::all_of(ranks.begin(), ranks.end(), [&](const auto& r) { return r.calls() == calls.size(); });
    if (all) return ranks;
    REQUIRE_MESSAGE(waiting < 10'000, "the ranks wait for each other");
  }
}

Config config_of(Random& random) {
  constexpr const char* kSingleCopy[] = {"auto", "auto", "on", "off"};
  constexpr Algorithm kConfigured[] = {Algorithm::kAuto,       Algorithm::kAuto, Algorithm::kAuto,
                                       Algorithm::kRegistered, Algorithm::kRing, Algorithm::kPull};
  Config config;
  config.single_copy = kSingleCopy[random.below(std::size(kSingleCopy))];
  config.algorithm = kConfigured[random.below(std::size(kConfigured))];
  return config;
}

}  // namespace

TEST_CASE("all ranks take the same route in 10,000 random jobs, whatever they measure and whoever is ahead") {
  // Proves: decide() and the table depend on nothing that one rank alone knows; and no rank waits for an exchange that
  // another does not take part in.
  std::set<Algorithm> seen;
  for (uint64_t seed = 0; seed < 10'000; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const int world = 2 + static_cast<int>(random.below(4));
    const Router router(0, island_of(world), config_of(random), random.below(4) != 0);
    // Few kinds of calls, so that what was learned of them matters.
    std::vector<PlannedCall> kinds;
    while (kinds.size() < 6) {
      PlannedCall call = random_call(random, world);
      try {
        router.ask(call.question, call.asked);
        kinds.push_back(call);
      } catch (const Exception&) {
        // no plan for it
      }
    }
    std::vector<PlannedCall> calls;
    for (int i = 0; i < 40; ++i) calls.push_back(kinds[random.below(kinds.size())]);
    const std::vector<SimulatedRank> ranks = simulate(calls, router, world, random);
    for (int rank = 1; rank < world; ++rank) {
      CAPTURE(rank);
      REQUIRE(ranks[static_cast<size_t>(rank)].routes == ranks[0].routes);
      REQUIRE(ranks[static_cast<size_t>(rank)].versions == ranks[0].versions);
    }
    for (const Route& route : ranks[0].routes) seen.insert(route.algorithm);
  }
  for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kStaged, Algorithm::kPull, Algorithm::kRegistered,
                                    Algorithm::kRing, Algorithm::kDirect}) {
    CAPTURE(algorithm_name(algorithm));
    CHECK(seen.count(algorithm) == 1);
  }
}

TEST_CASE("a table that has learned otherwise has another version") {
  // Proves: the answer to a stall question tells ranks that have diverged.
  RouteQuestion question;
  question.collective = Collective::kAllGather;
  question.bytes = 1 << 20;
  RouteTable one, other;
  CHECK(one.version() == other.version());
  one.began(question, {Next::kRun, Algorithm::kRing, RouteReason::kNotRegistered, false});
  CHECK(one.version() != other.version());
  other.began(question, {Next::kRun, Algorithm::kRing, RouteReason::kNotRegistered, false});
  CHECK(one.version() == other.version());
  one.exchanged(17);
  other.exchanged(18);
  CHECK(one.version() == other.version());  // nothing was timed
  one.began(question, {Next::kRun, Algorithm::kPull, RouteReason::kTrial, true});
  other.began(question, {Next::kRun, Algorithm::kPull, RouteReason::kTrial, true});
  one.exchanged(17);
  other.exchanged(18);
  CHECK(one.version() != other.version());
}

TEST_CASE("more kinds of plain calls than a table keeps: those that would ask first give way, and nothing else") {
  RouteTable table;
  const Route plain{Next::kRun, Algorithm::kRing, RouteReason::kNotRegistered, false};
  const Route known{Next::kRun, Algorithm::kRing, RouteReason::kKnownPlain, false};
  RouteQuestion question;
  const auto kind = [&](uint64_t bytes) {
    question.bytes = bytes;
    return question;
  };
  for (uint64_t bytes = 0; bytes < 1024; ++bytes) table.began(kind(bytes), plain);
  table.began(kind(7), known);
  CHECK(table.known_plain(kind(7)));
  table.began(kind(5000), plain);
  CHECK(!table.known_plain(kind(7)));
  CHECK(table.known_plain(kind(5000)));
  CHECK(table.known_plain(kind(0)));
  CHECK(table.known_plain(kind(1023)));
}

TEST_CASE("a plain call over links asks again after 31 that did not, and an exchange follows") {
  const Router router(0, island_of(3), Config{}, true);
  RouteQuestion question;
  question.collective = Collective::kAllGather;
  question.bytes = 1 << 20;
  question = router.ask(question, Algorithm::kAuto);
  REQUIRE(question.registered_first);
  RouteTable table;
  BufferFacts plain;
  plain.plain = 2;
  CHECK(router.decide(question, table, nullptr).next == Next::kExchangeCards);
  const Route first = router.decide(question, table, &plain);
  CHECK(first.reason == RouteReason::kNotRegistered);
  CHECK(first.medium() == Medium::kLinks);
  table.began(question, first);
  for (int call = 0; call < 31; ++call) {
    const Route route = router.decide(question, table, nullptr);
    REQUIRE(route.reason == RouteReason::kKnownPlain);
    table.began(question, route);
  }
  CHECK(router.decide(question, table, nullptr).next == Next::kExchangeCards);
}

TEST_CASE("memory that the kernel will not read: auto stages it from then on, and pull by name is refused") {
  const Router router(0, island_of(2), Config{}, true);
  RouteTable table;
  RouteQuestion question;
  question.bytes = 1 << 20;
  question = router.ask(question, Algorithm::kAuto);
  BufferFacts plain;
  plain.plain = 0;
  Route route = router.decide(question, table, &plain);
  while (route.algorithm != Algorithm::kPull) {
    table.began(question, route);
    table.exchanged(1000);
    route = router.decide(question, table, &plain);
  }
  CHECK(route.next == Next::kTryPull);
  BufferFacts unreadable = plain;
  unreadable.readable = false;

  const RouteQuestion by_name = router.ask(question, Algorithm::kPull);
  CHECK(!table.tried_pull(by_name, unreadable));
  const Route refused = router.decide(by_name, table, &unreadable);
  CHECK(refused.next == Next::kRefuse);
  CHECK(refusal_text(refused, unreadable).find("does not let one process read another's memory") != std::string::npos);

  CHECK(table.tried_pull(question, unreadable));
  CHECK(!table.tried_pull(question, unreadable));  // told once
  route = router.decide(question, table, &unreadable);
  CHECK(route.next == Next::kRun);
  CHECK(route.algorithm == Algorithm::kStaged);
  CHECK(router.decide(question, table, &plain).algorithm == Algorithm::kStaged);
}

}  // namespace rondo::testing
