#include "ring/engine/route/route.h"

#include <fmt/format.h>

#include "ring/engine/route/route_table.h"
#include "ring/plan/estimate.h"

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

Route ask(Next next, Algorithm algorithm, RouteReason reason) {
  Route route = run(algorithm, reason);
  route.next = next;
  return route;
}

// The kernel moves the bytes, once all ranks have seen that it does.
Route pull(RouteReason reason, const BufferFacts& buffers) {
  if (!buffers.readable) return ask(Next::kTryPull, Algorithm::kPull, reason);
  if (!*buffers.readable) return ask(Next::kRefuse, Algorithm::kPull, RouteReason::kUnreadable);
  return run(Algorithm::kPull, reason, Buffers::kPlain);
}

bool may_pull(const RouteTerms& terms, const RouteTable& table) {
  return terms.can_pull && terms.single_copy != SingleCopy::kOff && !table.pull_refused();
}

// What the trials of such calls want. buffers: nullptr: known to be plain without cards.
Route tried(const RouteQuestion& question, const RouteTerms& terms, const RouteTable& table,
            const BufferFacts* buffers) {
  const Trials::Next next =
      table.tuner().next(tuner_key(question), usable_ways(question, terms, table).all(), stores_to_try(terms));
  const RouteReason reason = next.stage == Trials::Stage::kSettled   ? RouteReason::kFaster
                             : next.stage == Trials::Stage::kResting ? question.why
                                                                     : RouteReason::kTrial;
  // Buffers that are read where they lie, and staging memory that the last call may still use.
  if (over_windows(next.way.algorithm) && buffers == nullptr) {
    return ask(Next::kExchangeCards, next.way.algorithm, RouteReason::kCardsUnknown);
  }
  Route route = next.way.algorithm == Algorithm::kPull
                    ? pull(reason, *buffers)
                    : run(next.way.algorithm, reason, buffers != nullptr ? Buffers::kPlain : Buffers::kKnownPlain);
  if (route.next != Next::kRun) return route;
  route.tuned = true;
  route.timed = next.timed;
  route.streamed = next.way.streamed;
  return route;
}

// Buffers of an island, of which some are not registered, and no algorithm was asked for.
Route share_plain(const RouteQuestion& question, const RouteTerms& terms, const RouteTable& table,
                  const BufferFacts* buffers) {
  const Buffers known = buffers != nullptr ? Buffers::kPlain : Buffers::kKnownPlain;
  const bool pulls = may_pull(terms, table);
  const bool posts = question.bytes <= kPostBytes;
  const bool always = pulls && terms.single_copy == SingleCopy::kOn;
  if (!always && question.tuned()) return tried(question, terms, table, buffers);
  // One exchange more than that of cards, where staging takes two.
  if (!always && posts) return run(Algorithm::kOneShot, RouteReason::kSmall, known);
  if (buffers == nullptr) return ask(Next::kExchangeCards, question.algorithm, RouteReason::kCardsUnknown);
  if (always) return pull(RouteReason::kConfigured, *buffers);
  const bool off = terms.single_copy == SingleCopy::kOff;
  return run(Algorithm::kStaged, off ? RouteReason::kConfigured : RouteReason::kUnreadable, known);
}

// The kind of stores of calls that are not tried.
bool streams(const RouteTerms& terms, const RouteTable& table) {
  return terms.stores == RouteTerms::Stores::kTried ? table.tuner().streamed()
                                                    : terms.stores == RouteTerms::Stores::kStreamed;
}

Route decide_way(const RouteQuestion& question, const RouteTerms& terms, const RouteTable& table,
                 const BufferFacts* buffers) {
  const Algorithm asked = question.algorithm;
  const bool windows = over_windows(asked);
  if (!windows && !question.registered_first) {
    if (!question.tuned()) return run(asked, question.why);
    Route route = tried(question, terms, table, buffers);
    route.buffers = Buffers::kAny;
    return route;
  }
  if (buffers == nullptr) {
    const bool either = !windows || asked == Algorithm::kWindow;
    if (!either || !table.known_plain(question)) {
      return ask(Next::kExchangeCards, asked, RouteReason::kCardsUnknown);
    }
    if (windows) return share_plain(question, terms, table, nullptr);
    if (question.tuned()) return tried(question, terms, table, nullptr);
    return run(asked, RouteReason::kKnownPlain, Buffers::kKnownPlain);
  }
  if (asked == Algorithm::kStaged) return run(asked, question.why);
  if (question.scales_at_source) return run(Algorithm::kStaged, RouteReason::kScaled);
  if (buffers->plain < 0) {
    return run(asked == Algorithm::kPull ? asked : Algorithm::kRegistered, RouteReason::kAllRegistered);
  }
  if (!windows) {
    return question.tuned() ? tried(question, terms, table, buffers)
                            : run(asked, RouteReason::kNotRegistered, Buffers::kPlain);
  }
  if (asked == Algorithm::kRegistered) return ask(Next::kRefuse, asked, RouteReason::kNotRegistered);
  if (asked == Algorithm::kWindow) return share_plain(question, terms, table, buffers);
  return terms.can_pull ? pull(question.why, *buffers) : ask(Next::kRefuse, asked, RouteReason::kUnreadable);
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

Alternatives usable_ways(const RouteQuestion& question, const RouteTerms& terms, const RouteTable& table) {
  if (may_pull(terms, table)) return question.ways;
  Alternatives ways;
  for (const Algorithm algorithm : question.ways.all()) {
    if (algorithm != Algorithm::kPull) ways.algorithms[ways.count++] = algorithm;
  }
  return ways;
}

Trials::Stores stores_to_try(const RouteTerms& terms) {
  return terms.stores == RouteTerms::Stores::kTried ? Trials::Stores::kBoth : Trials::Stores::kOne;
}

Route decide(const RouteQuestion& question, const RouteTerms& terms, const RouteTable& table,
             const BufferFacts* buffers) {
  if (buffers == nullptr && question.tuned() && table.tuner().due()) {
    return ask(Next::kExchangeTimes, question.algorithm, RouteReason::kTimesUnknown);
  }
  Route route = decide_way(question, terms, table, buffers);
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
