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

Route run(Algorithm algorithm, RouteReason reason) { return {Next::kRun, algorithm, reason, false}; }

// The kernel moves the bytes, once all ranks have seen that it does.
Route pull(RouteReason reason, const BufferFacts& buffers) {
  if (!buffers.readable) return {Next::kTryPull, Algorithm::kPull, reason, false};
  if (!*buffers.readable) return {Next::kRefuse, Algorithm::kPull, RouteReason::kUnreadable, false};
  return run(Algorithm::kPull, reason);
}

// Buffers of an island, of which some are not registered, and no algorithm was asked for.
Route share_plain(const RouteQuestion& question, const RouteTerms& terms, const RouteTable& table,
                  const BufferFacts& buffers) {
  const bool may_pull = terms.can_pull && terms.single_copy != SingleCopy::kOff && !table.pull_refused();
  if (may_pull && terms.single_copy == SingleCopy::kOn) return pull(RouteReason::kConfigured, buffers);
  // One exchange more than that of cards, where staging takes two.
  if (question.bytes <= kPostBytes) {
    if (collective_has_root(question.collective)) return run(Algorithm::kStaged, RouteReason::kRooted);
    return run(Algorithm::kOneShot, RouteReason::kSmall);
  }
  if (!may_pull) {
    const bool off = terms.single_copy == SingleCopy::kOff;
    return run(Algorithm::kStaged, off ? RouteReason::kConfigured : RouteReason::kUnreadable);
  }
  const CopyChoice& copies = table.copies();
  const bool timed = copies.measures(question.collective, question.bytes);
  const RouteReason reason = timed ? RouteReason::kTrial : RouteReason::kFaster;
  Route route = copies.way(question.collective, question.bytes) == Algorithm::kPull ? pull(reason, buffers)
                                                                                    : run(Algorithm::kStaged, reason);
  route.timed = timed;
  return route;
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
    case RouteReason::kRooted:
      return "small, with a root";
    case RouteReason::kScaled:
      return "each rank scales its own contribution";
    case RouteReason::kUnreadable:
      return "this system does not let one process read another's memory";
    case RouteReason::kTrial:
      return "trials of the ways to copy";
    case RouteReason::kFaster:
      return "faster in trials";
    case RouteReason::kCardsUnknown:
      return "the ranks have not exchanged their cards";
  }
  return "reason?";
}

Medium Route::medium() const {
  if (algorithm == Algorithm::kOneShot) return Medium::kBoard;
  return over_windows(algorithm) ? Medium::kWindows : Medium::kLinks;
}

Route decide(const RouteQuestion& question, const RouteTerms& terms, const RouteTable& table,
             const BufferFacts* buffers) {
  const Algorithm asked = question.algorithm;
  const bool windows = over_windows(asked);
  if (!windows && !question.registered_first) return {Next::kRun, asked, question.why, false};
  if (buffers == nullptr) {
    if (!windows && table.known_plain(question)) return run(asked, RouteReason::kKnownPlain);
    return {Next::kExchangeCards, asked, RouteReason::kCardsUnknown, false};
  }
  if (asked == Algorithm::kStaged) return run(asked, question.why);
  if (question.scales_at_source) return run(Algorithm::kStaged, RouteReason::kScaled);
  if (buffers->plain < 0) {
    return run(asked == Algorithm::kPull ? asked : Algorithm::kRegistered, RouteReason::kAllRegistered);
  }
  if (!windows) return run(asked, RouteReason::kNotRegistered);
  if (asked == Algorithm::kRegistered) return {Next::kRefuse, asked, RouteReason::kNotRegistered, false};
  if (asked == Algorithm::kWindow) return share_plain(question, terms, table, *buffers);
  return terms.can_pull ? pull(question.why, *buffers) : Route{Next::kRefuse, asked, RouteReason::kUnreadable, false};
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
