// Routes are chosen alike on all ranks, whatever each of them measures and which rank is ahead: the engine's decisions,
// without its threads.
#include "ring/engine/route/route.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ring/engine/route/route_table.h"
#include "ring/engine/route/router.h"
#include "ring/plan/fold_class.h"
#include "rondo/error.h"
#include "tests/support/float_modes.h"
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

Topology hosts_of(int world) {
  Topology topology;
  for (int rank = 0; rank < world; ++rank) topology.host.push_back(rank % 2);
  return topology;
}

PreparedCall all_reduce_of(uint64_t bytes) {
  PreparedCall call;
  call.collective = Collective::kAllReduce;
  call.bytes = bytes;
  return call;
}

PreparedCall asked(const Router& router, PreparedCall call, Algorithm algorithm = Algorithm::kAuto) {
  call.asked = algorithm;
  router.ask(call);
  return call;
}

// One call as the program makes it on all ranks: the buffers are each rank's own business.
struct PlannedCall {
  PreparedCall question;         // but for what ask() fills in
  std::vector<bool> registered;  // by rank
  bool readable = true;          // the kernel lets ranks read these buffers
};

// What a rank tells the others in one exchange.
struct Told {
  bool registered = false;
  bool reads = false;
  TimeRecord times{};
};

// A rank of the engine, but for the bytes: decides, takes part in exchanges, and goes on to the next call. It forgets
// calls that it has prepared when it likes.
class SimulatedRank {
 public:
  SimulatedRank(int rank, const Router& router, uint64_t seed) : rank_(rank), router_(router), random_(seed) {}

  // One step of the current call. `exchanges[i]`: what ranks have told in exchange i; this rank adds its part, and goes
  // on when all are there. False: it must wait.
  bool step(const PlannedCall& call, std::vector<std::vector<Told>>& exchanges, int world, const TimedCall& timed) {
    if (!question_) question_ = &prepared(call.question);
    PreparedCall& question = *question_;
    if (!told_) {
      const bool begins = !answers_.any();
      route_ = router_.decide(question, table_, answers_);
      if (begins && table_.goes_on(question)) return go_on(question);
      if (route_.next == Next::kRun || route_.next == Next::kRefuse) return end(question, timed);
      tell(call, exchanges);
    }
    const std::vector<Told>& exchange = exchanges[exchange_];
    if (exchange.size() < static_cast<size_t>(world)) return false;
    learn(call, question, exchange);
    return true;
  }
  size_t calls() const { return routes.size(); }

  std::vector<Route> routes;  // of the calls that have begun
  std::vector<uint64_t> versions;
  size_t choices = 0;
  size_t kept_routes = 0, kept_tuned = 0;
  RouteTable table_;

 private:
  PreparedCall& prepared(const PreparedCall& call) {
    const auto alike = [&](const auto& one) {
      CallFields made = *one;  // before ask()
      made.algorithm = Algorithm::kAuto;
      made.registered_first = false;
      return made == call && one->bytes == call.bytes;
    };
    auto found = std::find_if(prepared_.begin(), prepared_.end(), alike);
    if (found == prepared_.end()) {
      found = prepared_.insert(found, std::make_unique<PreparedCall>(asked(router_, call, call.asked)));
    } else if (random_.below(16) == 0) {
      **found = asked(router_, call, call.asked);
    }
    return **found;
  }

  // What the call has kept is what it would be told again.
  bool go_on(PreparedCall& question) {
    CHECK(*question.route == route_);
    ++kept_routes;
    if (route_.tuned) ++kept_tuned;
    versions.push_back(table_.version());
    table_.went_on(question);
    return over();
  }

  void tell(const PlannedCall& call, std::vector<std::vector<Told>>& exchanges) {
    if (exchanges.size() <= exchange_) exchanges.resize(exchange_ + 1);
    Told told;
    told.registered = call.registered[static_cast<size_t>(rank_)];
    told.reads = route_.next == Next::kTryPull && call.readable;
    if (route_.next == Next::kExchangeTimes) told.times = record_;
    exchanges[exchange_].push_back(told);
    told_ = true;
  }

  void learn(const PlannedCall&, const PreparedCall& question, const std::vector<Told>& exchange) {
    std::vector<TimeRecord> times;
    bool reads = true, all = true;
    for (const Told& told : exchange) {
      times.push_back(told.times);
      reads = reads && told.reads;
      all = all && told.registered;
    }
    told_ = false;
    ++exchange_;
    if (route_.next == Next::kExchangeTimes) {
      choices += table_.learn_times(times, router_.clocks()).size();
      answers_.times = true;
    } else if (route_.next == Next::kTryPull) {
      table_.tried_pull(question, reads);
      answers_.pulled = reads;
    } else {
      answers_.buffers = BufferFacts{all ? -1 : 0, all};  // which rank it is decides nothing
    }
  }

  bool end(PreparedCall& question, const TimedCall& timed) {
    versions.push_back(table_.version());
    if (route_.next == Next::kRun) {
      table_.began(question, router_.terms(), route_);
      table_.keep(question, route_, answers_);
    }
    if (route_.timed) record_[table_.tuner().pending() - 1] = timed;
    return over();
  }

  bool over() {
    routes.push_back(route_);
    answers_ = {};
    question_ = nullptr;
    return true;
  }

  int rank_;
  const Router& router_;
  Random random_;
  std::vector<std::unique_ptr<PreparedCall>> prepared_;
  PreparedCall* question_ = nullptr;  // of the current call
  Route route_;
  Answers answers_;  // of the current call
  bool told_ = false;
  size_t exchange_ = 0;
  TimeRecord record_{};
};

PlannedCall random_call(Random& random, int world) {
  constexpr uint64_t kBytes[] = {0, 8, 8192, 16'384, 65'536, 65'537, 100'000, 262'144, 300'000, 1 << 20, 1 << 24};
  constexpr Algorithm kAsked[] = {Algorithm::kWindow, Algorithm::kStaged, Algorithm::kPull, Algorithm::kRegistered,
                                  Algorithm::kRing};
  PlannedCall call;
  call.question.collective = static_cast<Collective>(random.below(8));
  call.question.bytes = kBytes[random.below(std::size(kBytes))];
  if (collective_reduces(call.question.collective) && random.below(8) == 0) call.question.op = Op::kPremulSum;
  call.question.uneven = random.below(8) == 0;
  call.question.root = collective_has_root(call.question.collective) ? static_cast<int>(random.below(2)) : -1;
  if (call.question.collective == Collective::kAllReduce) call.question.uneven = false;
  if (random.below(4) == 0) call.question.asked = kAsked[random.below(std::size(kAsked))];
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
  for (int rank = 0; rank < world; ++rank) ranks.emplace_back(rank, router, random.next());
  std::vector<std::vector<Told>> exchanges;
  int waiting = 0;
  while (true) {
    SimulatedRank& rank = ranks[random.below(static_cast<uint64_t>(world))];
    const size_t at = rank.calls();
    // Each rank measures what it likes; some of its calls waited behind others, which are in flight.
    const uint64_t begin = 1 + random.below(1'000'000);
    const TimedCall timed{begin, random.below(8) == 0 ? 0 : begin + random.below(100'000)};
    if (at < calls.size() && rank.step(calls[at], exchanges, world, timed)) {
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
  config.fold = random.below(4) == 0 ? "any" : "fixed";
  config.shared_stores = random.below(4) == 0 ? "cached" : "auto";
  return config;
}

}  // namespace

TEST_CASE("all ranks take the same route in 10,000 random jobs, whatever they measure and which rank is ahead") {
  // Proves: decide() and the table depend on nothing that one rank alone knows; no rank waits for an exchange that
  // another does not take part in; and a route that a call keeps is the one that it would be told again.
  std::set<Algorithm> seen;
  size_t choices = 0, kept_routes = 0, kept_tuned = 0;
  for (uint64_t seed = 0; seed < 10'000; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const int world = 2 + static_cast<int>(random.below(4));
    // Few kinds of calls, so that what was learned of them matters; in some jobs so many that trials come to an end.
    const bool is_long = seed % 16 == 0;
    const Topology topology = seed % 5 == 4 ? hosts_of(world) : island_of(world);
    const Router router(0, topology, config_of(random), random.below(4) != 0);
    std::vector<PlannedCall> kinds;
    while (kinds.size() < (is_long ? 2 : 6)) {
      PlannedCall call = random_call(random, world);
      try {
        asked(router, call.question, call.question.asked);
        kinds.push_back(call);
      } catch (const Exception&) {
        // no plan for it
      }
    }
    std::vector<PlannedCall> calls;
    for (int i = 0; i < (is_long ? 300 : 40); ++i) calls.push_back(kinds[random.below(kinds.size())]);
    const std::vector<SimulatedRank> ranks = simulate(calls, router, world, random);
    for (int rank = 1; rank < world; ++rank) {
      CAPTURE(rank);
      REQUIRE(ranks[static_cast<size_t>(rank)].routes == ranks[0].routes);
      REQUIRE(ranks[static_cast<size_t>(rank)].versions == ranks[0].versions);
    }
    choices += ranks[0].choices;
    kept_routes += ranks[0].kept_routes;
    kept_tuned += ranks[0].kept_tuned;
    for (const Route& route : ranks[0].routes) seen.insert(route.algorithm);
  }
  for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kStaged, Algorithm::kPull, Algorithm::kRegistered,
                                    Algorithm::kRing, Algorithm::kDirect}) {
    CAPTURE(algorithm_name(algorithm));
    CHECK(seen.count(algorithm) == 1);
  }
  CHECK(choices > 50);
  CHECK(kept_routes > 1000);
  CHECK(kept_tuned > 1000);
}

TEST_CASE("a table that has learned otherwise has another version") {
  // Proves: the answer to a stall question tells ranks that have diverged.
  const Router router(0, island_of(2), Config{}, true);
  PreparedCall question = asked(router, all_reduce_of(1 << 20));
  Route route;
  route.algorithm = Algorithm::kStaged;
  route.buffers = Route::Buffers::kPlain;
  RouteTable one, other;
  CHECK(one.version() == other.version());
  one.began(question, router.terms(), route);
  CHECK(one.version() != other.version());
  other.began(question, router.terms(), route);
  CHECK(one.version() == other.version());
  std::vector<TimeRecord> records(2);
  one.learn_times(records, Clocks::kOne);
  records[0][3] = {5, 7};
  other.learn_times(records, Clocks::kOne);
  CHECK(one.version() != other.version());
}

TEST_CASE("more kinds of plain calls than a table keeps: those that would ask first give way, and nothing else") {
  RouteTable table;
  Route plain, known;
  plain.buffers = Route::Buffers::kPlain;
  known.buffers = Route::Buffers::kKnownPlain;
  const auto kind = all_reduce_of;
  const auto began = [&](uint64_t bytes, const Route& route) {
    PreparedCall call = kind(bytes);
    table.began(call, {}, route);
  };
  for (uint64_t bytes = 0; bytes < 1024; ++bytes) began(bytes, plain);
  began(7, known);
  CHECK(table.known_plain(kind(7)));
  began(8, plain);  // known already: it takes no other's place
  CHECK(table.known_plain(kind(7)));
  PreparedCall kept = kind(7);
  table.keep(kept, known, {});
  CHECK(table.goes_on(kept));
  began(5000, plain);
  CHECK(!table.goes_on(kept));
  CHECK(!table.known_plain(kind(7)));
  CHECK(table.known_plain(kind(5000)));
  CHECK(table.known_plain(kind(0)));
  CHECK(table.known_plain(kind(1023)));
}

TEST_CASE("a plain call asks again after 31 that did not, and an exchange follows: over links, and by posts") {
  const Router router(0, island_of(3), Config{}, true);
  struct Kind {
    Collective collective;
    uint64_t bytes;
    Medium medium;
  };
  for (const Kind& tried : {Kind{Collective::kAllToAll, 12 * 1024, Medium::kBoard},
                            Kind{Collective::kAllReduce, 10 * 1024, Medium::kBoard}}) {
    CAPTURE(collective_name(tried.collective));
    PreparedCall question = all_reduce_of(tried.bytes);
    question.collective = tried.collective;
    question = asked(router, question, Algorithm::kWindow);
    REQUIRE(!question.tuned());
    RouteTable table;
    Answers plain;
    plain.buffers = BufferFacts{2, false};
    CHECK(router.decide(question, table, {}).next == Next::kExchangeCards);
    const Route first = router.decide(question, table, plain);
    CHECK(first.medium() == tried.medium);
    table.began(question, router.terms(), first);
    for (int call = 0; call < 31; ++call) {
      const Route route = router.decide(question, table, {});
      REQUIRE(route.next == Next::kRun);
      REQUIRE(route.buffers == Route::Buffers::kKnownPlain);
      table.began(question, router.terms(), route);
    }
    CHECK(router.decide(question, table, {}).next == Next::kExchangeCards);
  }
}

TEST_CASE("memory that the kernel will not read: auto does not pull from then on, and pull by name is refused") {
  const Router router(0, island_of(2), Config{}, true);
  RouteTable table;
  PreparedCall question = asked(router, all_reduce_of(1 << 20));
  Answers plain;
  plain.buffers = BufferFacts{0, false};
  Route route = router.decide(question, table, plain);
  while (route.algorithm != Algorithm::kPull) {
    table.began(question, router.terms(), route);
    route = router.decide(question, table, plain);
  }
  CHECK(route.next == Next::kTryPull);
  Answers unreadable = plain;
  unreadable.pulled = false;

  const PreparedCall by_name = asked(router, question, Algorithm::kPull);
  CHECK(!table.tried_pull(by_name, false));
  const Route refused = router.decide(by_name, table, unreadable);
  CHECK(refused.next == Next::kRefuse);
  CHECK(refusal_text(refused, *unreadable.buffers).find("does not let one process read another's memory") !=
        std::string::npos);

  CHECK(table.tried_pull(question, false));
  CHECK(!table.tried_pull(question, false));  // told once
  for (int call = 0; call < 16; ++call) {
    route = router.decide(question, table, plain);
    CHECK(route.next == Next::kRun);
    CHECK(route.algorithm != Algorithm::kPull);
    table.began(question, router.terms(), route);
  }
}

TEST_CASE("which calls are tried: not small ones, nor those that ask for an algorithm or carry a wire format") {
  const Router router(0, island_of(2), Config{}, true);
  const PreparedCall question = all_reduce_of(64 * 1024);
  CHECK(asked(router, question).tuned());
  CHECK(!asked(router, question, Algorithm::kRing).tuned());
  PreparedCall small = question;
  small.bytes = 16 * 1024 - 1;
  CHECK(!asked(router, small).tuned());
  PreparedCall coded = question;
  coded.wire = WireFormat::kInt8;
  CHECK(!asked(router, coded).tuned());
  PreparedCall rooted = question;
  rooted.collective = Collective::kBroadcast;
  rooted.root = 0;
  CHECK(asked(router, rooted).tuned());
  Topology hosts;
  hosts.host = {0, 1};
  CHECK(!asked(Router(0, hosts, Config{}, false), rooted).tuned());
}

TEST_CASE("calls with a wire format take one exchange between hosts until coding costs more than a latency") {
  const Router router(0, hosts_of(2), Config{}, false);
  const auto chosen = [&](WireFormat format, uint64_t bytes) {
    PreparedCall call = all_reduce_of(bytes);
    call.wire = format;
    return asked(router, call).algorithm;
  };
  for (const WireFormat format : {WireFormat::kBfloat16, WireFormat::kInt8, WireFormat::kInt4}) {
    CHECK_EQ(chosen(format, 8 * 1024), Algorithm::kDirect);
    CHECK_EQ(chosen(format, 128 * 1024), Algorithm::kRing);
  }
  // A format with fewer bytes an element has more elements to code in as many bytes.
  CHECK_EQ(chosen(WireFormat::kBfloat16, 48 * 1024), Algorithm::kDirect);
  CHECK_EQ(chosen(WireFormat::kInt4, 48 * 1024), Algorithm::kRing);
}

TEST_CASE("what is chosen does not depend on the mode of a thread's floats") {
  constexpr Collective kChosen[] = {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                                    Collective::kBroadcast, Collective::kReduce,    Collective::kAllToAll};
  struct Choice {
    Algorithm algorithm;
    bool registered_first;
    std::vector<Algorithm> ways;
    bool operator==(const Choice&) const = default;
  };
  const auto choices = [&](const Topology& topology, int mode) {
    const FloatMode own(mode);
    const Router router(0, topology, Config{}, true);
    std::vector<Choice> found;
    for (const Collective collective : kChosen) {
      for (uint64_t bytes = 1; bytes < 1 << 22; bytes += bytes / 50 + 1) {
        for (const int kind : {0, 1, 2}) {
          PreparedCall question = all_reduce_of(bytes);
          question.collective = collective;
          question.root = collective_has_root(collective) ? 0 : -1;
          if (kind == 1 && collective == Collective::kAllReduce) question.wire = WireFormat::kInt8;
          if (kind == 2 && collective_reduces(collective)) question.user_bytes = 3, question.in_order = true;
          const PreparedCall answer = asked(router, question);
          const auto ways = answer.ways.all();
          found.push_back({answer.algorithm, answer.registered_first, {ways.begin(), ways.end()}});
        }
      }
    }
    return found;
  };
  for (const int world : {2, 3, 4, 7, 8}) {
    for (const Topology& topology : {island_of(world), hosts_of(world)}) {
      const std::vector<Choice> wanted = choices(topology, 0);
      for (int mode = 1; mode < kFloatModes; ++mode) CHECK((choices(topology, mode) == wanted));
    }
  }
}

TEST_CASE("ways fold alike, and by RONDO_FOLD=any they need not") {
  Config any;
  any.fold = "any";
  const Topology island = island_of(4);
  const auto ways = [&](const Config& config) {
    const PreparedCall question = all_reduce_of(512 * 1024);
    const Alternatives found = asked(Router(0, island, config, true), question).ways;
    return std::vector<Algorithm>(found.all().begin(), found.all().end());
  };
  const std::vector<Algorithm> alike = ways(Config{});
  REQUIRE(!alike.empty());
  for (const Algorithm way : alike) CHECK(fold_alike(Collective::kAllReduce, way, alike.front(), 4));
  const std::vector<Algorithm> all = ways(any);
  CHECK(std::any_of(all.begin(), all.end(),
                    [&](Algorithm way) { return !fold_alike(Collective::kAllReduce, way, all.front(), 4); }));
}

}  // namespace rondo::testing
