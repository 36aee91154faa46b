#include "ring/engine/route/route.h"

#include <fmt/format.h>

#include "ring/base/check.h"
#include "ring/engine/route/prepared_call.h"
#include "ring/plan/layout.h"

namespace rondo {
namespace {

// What is pulled in one round is stored by its owner and read by the others soon after, from the last-level cache.
constexpr uint64_t kPullRoundBytes = 4 * 1024 * 1024;

using SingleCopy = RouteTerms::SingleCopy;
using Next = Route::Next;
using Buffers = Route::Buffers;

Route run(Algorithm algorithm, RouteReason reason, Buffers buffers = Buffers::kAny) {
  Route route;
  route.algorithm = algorithm;
  route.reason = reason;
  route.buffers = buffers;
  return route;
}

// A route that is an exchange first. The algorithm is what is likely to run, for messages.
Route ask(Next next, Algorithm algorithm, RouteReason reason, const Answers& answers) {
  RONDO_CHECK(!answers.has(next), "no question is asked twice");
  Route route = run(algorithm, reason);
  route.next = next;
  return route;
}

Route ask_for_cards(Algorithm algorithm, const Answers& answers) {
  return ask(Next::kExchangeCards, algorithm, RouteReason::kCardsUnknown, answers);
}

Route refuse(Algorithm algorithm, RouteReason reason) {
  Route route = run(algorithm, reason);
  route.next = Next::kRefuse;
  return route;
}

// The kernel moves the bytes, once all ranks have seen that it does.
Route pull(RouteReason reason, const Answers& answers) {
  if (answers.buffers->readable || answers.pulled == true) return run(Algorithm::kPull, reason, Buffers::kPlain);
  if (!answers.pulled) return ask(Next::kTryPull, Algorithm::kPull, reason, answers);
  return refuse(Algorithm::kPull, RouteReason::kUnreadable);
}

bool may_pull(const RouteTerms& terms, bool pull_refused) {
  return terms.can_pull && terms.single_copy != SingleCopy::kOff && !pull_refused;
}

// What the trials of such calls want. Buffers of which there are no cards are known to be plain.
Route tried(const PreparedCall& call, const TableFacts& table, const Answers& answers) {
  const Trials::Next next = table.next();
  const RouteReason reason = next.stage == Trials::Stage::kSettled   ? RouteReason::kFaster
                             : next.stage == Trials::Stage::kResting ? call.why
                                                                     : RouteReason::kTrial;
  // Buffers that are read where they lie, and staging memory that the last call may still use.
  if (over_windows(next.way.algorithm) && !answers.buffers) return ask_for_cards(next.way.algorithm, answers);
  Route route = next.way.algorithm == Algorithm::kPull
                    ? pull(reason, answers)
                    : run(next.way.algorithm, reason, answers.buffers ? Buffers::kPlain : Buffers::kKnownPlain);
  if (route.next != Next::kRun) return route;
  route.tuned = true;
  route.timed = next.timed;
  route.streamed = next.way.streamed;
  return route;
}

// Buffers of an island, of which some are not registered, and no algorithm was asked for.
Route share_plain(const PreparedCall& call, const RouteTerms& terms, const TableFacts& table, const Answers& answers) {
  const Buffers known = answers.buffers ? Buffers::kPlain : Buffers::kKnownPlain;
  const bool always = terms.single_copy == SingleCopy::kOn && may_pull(terms, table.pull_refused);
  if (!always && call.tuned()) return tried(call, table, answers);
  // One exchange more than that of cards, where staging takes two.
  if (!always && call.bytes <= kPostBytes) return run(Algorithm::kOneShot, RouteReason::kSmall, known);
  if (!answers.buffers) return ask_for_cards(call.algorithm, answers);
  if (always) return pull(RouteReason::kConfigured, answers);
  const bool off = terms.single_copy == SingleCopy::kOff;
  return run(Algorithm::kStaged, off ? RouteReason::kConfigured : RouteReason::kUnreadable, known);
}

// The kind of stores of calls that are not tried.
bool streams(const RouteTerms& terms, const TableFacts& table) {
  return terms.stores == RouteTerms::Stores::kTried ? table.streamed : terms.stores == RouteTerms::Stores::kStreamed;
}

// The route of a call that may go over windows, before the ranks have exchanged their cards.
Route decide_unasked(const PreparedCall& call, const RouteTerms& terms, const TableFacts& table,
                     const Answers& answers) {
  const Algorithm asked = call.algorithm;
  const bool windows = over_windows(asked);
  const bool either = !windows || asked == Algorithm::kWindow;
  if (!either || !table.known_plain) return ask_for_cards(asked, answers);
  if (windows) return share_plain(call, terms, table, answers);
  if (call.tuned()) return tried(call, table, answers);
  return run(asked, RouteReason::kKnownPlain, Buffers::kKnownPlain);
}

// Without windows the call runs at once. With them, what the ranks know of the buffers decides: all registered, some
// plain, or not known yet.
Route decide_way(const PreparedCall& call, const RouteTerms& terms, const TableFacts& table, const Answers& answers) {
  const Algorithm asked = call.algorithm;
  const bool windows = over_windows(asked);
  if (!windows && !call.registered_first) {
    if (!call.tuned()) return run(asked, call.why);
    Route route = tried(call, table, answers);
    route.buffers = Buffers::kAny;
    return route;
  }
  if (!answers.buffers) return decide_unasked(call, terms, table, answers);
  if (asked == Algorithm::kStaged) return run(asked, call.why);
  if (call.scales_at_source()) return run(Algorithm::kStaged, RouteReason::kScaled);
  if (answers.buffers->plain < 0) {
    return run(asked == Algorithm::kPull ? asked : Algorithm::kRegistered, RouteReason::kAllRegistered);
  }
  if (!windows) {
    return call.tuned() ? tried(call, table, answers) : run(asked, RouteReason::kNotRegistered, Buffers::kPlain);
  }
  if (asked == Algorithm::kRegistered) return refuse(asked, RouteReason::kNotRegistered);
  if (asked == Algorithm::kWindow) return share_plain(call, terms, table, answers);
  return terms.can_pull ? pull(call.why, answers) : refuse(asked, RouteReason::kUnreadable);
}

}  // namespace

const char* reason_text(RouteReason reason) {
  switch (reason) {
    case RouteReason::kCheapest:
      return "cheapest";
    case RouteReason::kAsked:
      return "asked for";
    case RouteReason::kConfigured:
      return "by the settings";
    case RouteReason::kAllRegistered:
      return "all buffers are registered";
    case RouteReason::kNotRegistered:
      return "some buffers are not registered";
    case RouteReason::kKnownPlain:
      return "some buffers were not registered in the last such call that asked";
    case RouteReason::kSmall:
      return "a post holds it";
    case RouteReason::kScaled:
      return "each rank scales its own contribution";
    case RouteReason::kUnreadable:
      return "this system does not let one process read another's memory";
    case RouteReason::kTrial:
      return "its ways are being timed";
    case RouteReason::kFaster:
      return "faster in trials";
    case RouteReason::kCardsUnknown:
      return "the ranks have not exchanged their cards";
    case RouteReason::kTimesUnknown:
      return "the ranks have not exchanged their times";
  }
  return "reason?";
}

Medium Route::medium() const {
  if (algorithm == Algorithm::kOneShot) return Medium::kBoard;
  return over_windows(algorithm) ? Medium::kWindows : Medium::kLinks;
}

bool Answers::has(Next exchange) const {
  switch (exchange) {
    case Next::kExchangeTimes:
      return times;
    case Next::kExchangeCards:
      return buffers.has_value();
    case Next::kTryPull:
      return pulled.has_value();
    case Next::kRun:
    case Next::kRefuse:
      break;
  }
  return true;  // these ask for nothing
}

Alternatives usable_ways(const PreparedCall& call, const RouteTerms& terms, bool pull_refused) {
  if (may_pull(terms, pull_refused)) return call.ways;
  Alternatives ways;
  for (const Algorithm algorithm : call.ways.all()) {
    if (algorithm != Algorithm::kPull) ways.algorithms[ways.count++] = algorithm;
  }
  return ways;
}

Trials::Stores stores_to_try(const RouteTerms& terms) {
  return terms.stores == RouteTerms::Stores::kTried ? Trials::Stores::kBoth : Trials::Stores::kOne;
}

Route decide(const PreparedCall& call, const RouteTerms& terms, const TableFacts& table, const Answers& answers) {
  // Before the cards: the times may change which way comes next, and so what is asked of the buffers.
  if (call.tuned() && table.times_due && !answers.times && !answers.buffers) {
    return ask(Next::kExchangeTimes, call.algorithm, RouteReason::kTimesUnknown, answers);
  }
  Route route = decide_way(call, terms, table, answers);
  if (!route.tuned) route.streamed = streams(terms, table);
  return route;
}

uint64_t round_bytes(Algorithm algorithm, uint64_t staging_bytes) {
  if (algorithm == Algorithm::kStaged) return staging_bytes;
  return algorithm == Algorithm::kPull ? kPullRoundBytes : UINT64_MAX;  // registered buffers need no rounds
}

std::string refusal_text(const Route& route, const BufferFacts& buffers) {
  if (route.reason == RouteReason::kNotRegistered) {
    return fmt::format(
        "the algorithm \"{}\" was asked for, but the buffers of rank {} are not in memory from "
        "Communicator::allocate()",
        algorithm_name(route.algorithm), buffers.plain);
  }
  return fmt::format("the algorithm \"{}\" was asked for, but {}, and the buffers of rank {} are not registered",
                     algorithm_name(route.algorithm), reason_text(route.reason), buffers.plain);
}

}  // namespace rondo
