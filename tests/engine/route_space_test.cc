// Every call is decided after three exchanges at most: decide() over the whole space of questions, terms, tables and
// answers. The table may say anything at each step, so that nothing depends on what trials happen to have learned.
#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <vector>

#include "ring/engine/route/route.h"
#include "ring/engine/route/router.h"
#include "ring/plan/layout.h"
#include "rondo/error.h"

namespace rondo::testing {
namespace {

using Next = Route::Next;
using SingleCopy = RouteTerms::SingleCopy;
using Stores = RouteTerms::Stores;
using Stage = Trials::Stage;

constexpr bool kBoth[] = {false, true};

std::vector<Algorithm> all_algorithms() {
  std::vector<Algorithm> all;
  for (int i = 1; i < kAlgorithms; ++i) all.push_back(static_cast<Algorithm>(i));
  return all;
}

// All that decide() tells apart in a question.
std::vector<PreparedCall> all_questions() {
  std::vector<PreparedCall> questions;
  for (const Algorithm algorithm : all_algorithms()) {
    for (unsigned bits = 0; bits < 16; ++bits) {
      PreparedCall question;
      question.collective = Collective::kAllReduce;
      question.algorithm = algorithm;
      question.registered_first = (bits & 1) != 0;
      question.op = (bits & 2) != 0 ? Op::kPremulSum : Op::kSum;
      question.bytes = (bits & 4) != 0 ? kPostBytes : kPostBytes + 1;
      question.ways.count = (bits & 8) != 0 ? 1 : 0;
      questions.push_back(question);
    }
  }
  return questions;
}

std::vector<RouteTerms> all_terms() {
  std::vector<RouteTerms> all;
  for (const SingleCopy single_copy : {SingleCopy::kAuto, SingleCopy::kOn, SingleCopy::kOff}) {
    for (const bool can_pull : kBoth) {
      for (const Stores stores : {Stores::kTried, Stores::kCached, Stores::kStreamed}) {
        all.push_back({single_copy, can_pull, stores});
      }
    }
  }
  return all;
}

std::vector<TableFacts> all_tables() {
  std::vector<TableFacts> all;
  for (unsigned bits = 0; bits < 16; ++bits) {
    TableFacts table;
    table.times_due = (bits & 1) != 0;
    table.known_plain = (bits & 2) != 0;
    table.pull_refused = (bits & 4) != 0;
    table.streamed = (bits & 8) != 0;
    for (const Algorithm way : all_algorithms()) {
      for (const Stage stage : {Stage::kAll, Stage::kStores, Stage::kSettled, Stage::kResting}) {
        const Trials::Next next{{way, stage == Stage::kStores}, stage != Stage::kResting, stage, 0};
        table.next = [next] { return next; };
        all.push_back(table);
      }
    }
  }
  return all;
}

// Everything that the exchange may bring.
std::vector<Answers> after(Next exchange, const Answers& known) {
  std::vector<Answers> all;
  if (exchange == Next::kExchangeTimes) {
    all.push_back(known);
    all.back().times = true;
  }
  for (const bool yes : kBoth) {
    if (exchange == Next::kTryPull) {
      all.push_back(known);
      all.back().pulled = yes;
    }
    for (const int plain : {-1, 0}) {
      if (exchange != Next::kExchangeCards) continue;
      all.push_back(known);
      all.back().buffers = BufferFacts{plain, yes};
    }
  }
  return all;
}

// What RouteTable promises: the ways of trials are usable ones, and it has learned that pulling fails. It promises
// nothing of calls that ask for pull by name.
bool promised(const PreparedCall& question, const RouteTerms& terms, const TableFacts& table, const Answers& answers) {
  const Algorithm way = table.next().way.algorithm;
  if (way == Algorithm::kWindow || way == Algorithm::kRegistered) return false;
  if (answers.pulled == false && question.algorithm != Algorithm::kPull && !table.pull_refused) return false;
  const bool may_pull = terms.can_pull && terms.single_copy != SingleCopy::kOff && !table.pull_refused;
  return way != Algorithm::kPull || may_pull;
}

// "" if the route may be taken.
const char* fault_of(const PreparedCall& question, const TableFacts& table, const Answers& answers,
                     const Route& route) {
  if (route.next == Next::kRefuse) {
    const bool by_name = question.algorithm == Algorithm::kPull || question.algorithm == Algorithm::kRegistered;
    return by_name ? "" : "a call that asked for nothing is refused";
  }
  const bool windows = over_windows(route.algorithm);
  const bool reads = answers.buffers && (answers.buffers->plain < 0 || answers.buffers->readable);
  if (windows && !answers.buffers) return "windows without cards";
  if (route.algorithm == Algorithm::kWindow) return "no plan";
  if (route.algorithm == Algorithm::kPull && !reads && answers.pulled != true) return "pulls what cannot be read";
  if (route.algorithm == Algorithm::kRegistered && answers.buffers->plain >= 0) return "not all are registered";
  const bool known = table.known_plain && !answers.buffers;
  if (route.buffers == Route::Buffers::kKnownPlain && !known) return "nothing is known";
  return "";
}

// Decides the call for each table, exchange after exchange, and returns the most exchanges that it took.
int most_exchanges(const PreparedCall& question, const RouteTerms& terms, const std::vector<TableFacts>& tables) {
  std::vector<Answers> reached{{}};
  for (int exchanges = 0; exchanges <= Answers::kMostExchanges; ++exchanges) {
    std::vector<Answers> further;
    for (const Answers& answers : reached) {
      std::set<Next> asked;
      for (const TableFacts& table : tables) {
        const Route route = decide(question, terms, table, answers);
        if (route.next != Next::kRun && route.next != Next::kRefuse) {
          asked.insert(route.next);
        } else if (promised(question, terms, table, answers)) {
          const std::string fault = fault_of(question, table, answers, route);
          REQUIRE_MESSAGE(fault.empty(), fault);
        }
      }
      for (const Next exchange : asked) {
        REQUIRE(!answers.has(exchange));
        const std::vector<Answers> more = after(exchange, answers);
        further.insert(further.end(), more.begin(), more.end());
      }
    }
    if (further.empty()) return exchanges;
    reached = std::move(further);
  }
  return Answers::kMostExchanges + 1;
}

Topology island_of(int world) {
  Topology topology;
  topology.host.assign(static_cast<size_t>(world), 0);
  topology.island.assign(static_cast<size_t>(world), 0);
  return topology;
}

}  // namespace

TEST_CASE("every call is decided after three exchanges at most, and what runs is what its buffers allow") {
  const std::vector<TableFacts> tables = all_tables();
  int most = 0;
  for (const PreparedCall& question : all_questions()) {
    CAPTURE(algorithm_name(question.algorithm));
    CAPTURE(question.registered_first);
    CAPTURE(question.scales_at_source());
    CAPTURE(question.bytes);
    CAPTURE(question.tuned());
    for (const RouteTerms& terms : all_terms()) {
      const int exchanges = most_exchanges(question, terms, tables);
      REQUIRE(exchanges <= Answers::kMostExchanges);
      most = std::max(most, exchanges);
    }
  }
  CHECK(most == Answers::kMostExchanges);  // the bound is reached: the space is not empty
}

TEST_CASE("registered buffers ask no trials: making them costs a third of a small call") {
  Answers registered;
  registered.buffers = BufferFacts{};
  int asked = 0, calls = 0;
  TableFacts table;
  table.next = [&asked] { return ++asked, Trials::Next{}; };
  for (const PreparedCall& question : all_questions()) {
    if (!over_windows(question.algorithm) && !question.registered_first) continue;
    for (const RouteTerms& terms : all_terms()) {
      for (const Answers& answers : {Answers{}, registered}) decide(question, terms, table, answers);
      ++calls;
    }
  }
  CHECK(asked == 0);
  CHECK(calls > 0);
}

TEST_CASE("of its own accord the engine asks for no algorithm that buffers could refuse") {
  // Proves: fault_of()'s exception for calls by name is for calls that were made by name.
  for (const int world : {2, 3, 4, 8, 17}) {
    const Router router(0, island_of(world), Config{}, true);
    for (int c = 0; c < kCollectives; ++c) {
      for (uint64_t bytes = 0; bytes < (uint64_t{1} << 30); bytes = bytes * 2 + 8) {
        PreparedCall question;
        question.collective = static_cast<Collective>(c);
        question.bytes = bytes;
        question.root = collective_has_root(question.collective) ? 0 : -1;
        router.ask(question);
        REQUIRE(question.algorithm != Algorithm::kPull);
        REQUIRE(question.algorithm != Algorithm::kRegistered);
        for (const Algorithm way : question.ways.all()) {
          REQUIRE(way != Algorithm::kWindow);
          REQUIRE(way != Algorithm::kRegistered);
        }
      }
    }
  }
}

}  // namespace rondo::testing
