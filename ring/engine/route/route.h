#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "ring/base/types.h"
#include "ring/engine/route/trials.h"
#include "ring/plan/choose.h"

namespace rondo {

// What moves the bytes of a route.
enum class Medium : uint8_t { kLinks, kBoard, kWindows };

// Why a route was taken.
enum class RouteReason : uint8_t {
  kCheapest,       // by the cost model
  kAsked,          // by the call
  kConfigured,     // RONDO_ALGORITHM, RONDO_SINGLE_COPY
  kAllRegistered,  // the buffers of all ranks
  kNotRegistered,  // the buffers of some rank
  kKnownPlain,     // as kNotRegistered, at the last exchange of cards for such a call
  kSmall,          // one post a rank holds it
  kScaled,         // each rank scales its own contribution before others read it
  kUnreadable,     // the kernel does not let ranks read each other's memory
  kTrial,          // its ways are being timed
  kFaster,         // in those trials
  kCardsUnknown,   // the ranks have not exchanged yet where their buffers lie
  kTimesUnknown,   // the ranks have not exchanged yet what they have timed
};
const char* reason_text(RouteReason reason);

// The ways among which the trials of one kind of calls choose.
struct Alternatives {
  std::array<Algorithm, Chooser::kMostAlternatives> algorithms{};
  uint8_t count = 0;
  std::span<const Algorithm> all() const { return {algorithms.data(), count}; }
  auto operator<=>(const Alternatives&) const = default;
};

struct PreparedCall;

// What is equal on all ranks from the start.
struct RouteTerms {
  // RONDO_SINGLE_COPY. kOn: plain buffers are always pulled where the kernel allows it; kOff: never, unless by name.
  enum class SingleCopy : uint8_t { kAuto, kOn, kOff };
  SingleCopy single_copy = SingleCopy::kAuto;
  bool can_pull = false;  // SharedMemory::can_pull()
  // How memory that others read next is written: as tried, or as configured.
  enum class Stores : uint8_t { kTried, kCached, kStreamed };
  Stores stores = Stores::kCached;
};

// What the table of routes (route_table.h) says about one question. Equal on all ranks.
struct TableFacts {
  bool times_due = false;     // the ranks have times to tell each other
  bool known_plain = false;   // such a call runs as for plain buffers without an exchange of cards
  bool pull_refused = false;  // a rank could not read another's memory
  bool streamed = false;      // the kind of stores that proved better
  // What the trials want, of a question that is tuned. It looks for the trials of such calls, and makes new ones where
  // there are none: called only where they choose.
  std::function<Trials::Next()> next;
};

// What the cards of all ranks say about the buffers of one call.
struct BufferFacts {
  int plain = -1;        // the first rank whose buffers are not registered; -1: all are
  bool readable = true;  // every rank can read the others' buffers; false: nobody has tried yet
};

// How one call goes on.
struct Route {
  enum class Next : uint8_t {
    kRun,            // the plan of `algorithm`
    kExchangeCards,  // then decide() again
    kExchangeTimes,  // likewise
    kTryPull,        // reads a byte of the others' buffers and exchanges cards; then decide() again
    kRefuse,         // kInvalid on all ranks: their buffers do not allow the algorithm that was asked for
  };
  // What was known of the buffers where it did not depend on them alone that the call runs as for plain ones.
  enum class Buffers : uint8_t {
    kAny,
    kPlain,       // by the cards of this call
    kKnownPlain,  // by those of an earlier one
  };
  Next next = Next::kRun;
  Algorithm algorithm = Algorithm::kAuto;
  RouteReason reason = RouteReason::kCheapest;
  Buffers buffers = Buffers::kAny;
  bool tuned = false;     // by the trials of its kind
  bool timed = false;     // how long it takes goes into them
  bool streamed = false;  // Way::streamed

  // Follows from the algorithm alone.
  Medium medium() const;
  bool operator==(const Route&) const = default;
};

// What the exchanges of one call have brought: one answer for each exchange that decide() may ask for. It asks for
// an answer only while there is none, and an exchange always gives one, so kMostExchanges decide every call.
struct Answers {
  static constexpr int kMostExchanges = 3;
  bool times = false;                  // kExchangeTimes: the table has learned them
  std::optional<BufferFacts> buffers;  // kExchangeCards
  std::optional<bool> pulled;          // kTryPull: every rank could read a byte of the others' buffers

  // Whether this exchange has been made. True for kRun and kRefuse, which are no exchanges.
  bool has(Route::Next exchange) const;
  bool any() const { return times || buffers || pulled; }
};

// The route of a call. A pure function of what all ranks agree on, so that all ranks decide alike: the ranks call it
// when the operation begins (operations begin in call order), and again after each exchange that it asks for.
Route decide(const PreparedCall& call, const RouteTerms& terms, const TableFacts& table, const Answers& answers);

// The ways of the question without those that cannot be used here.
Alternatives usable_ways(const PreparedCall& call, const RouteTerms& terms, bool pull_refused);
Trials::Stores stores_to_try(const RouteTerms& terms);

// Bytes of a rank's buffer that a plan over windows takes in one round.
uint64_t round_bytes(Algorithm algorithm, uint64_t staging_bytes);

// Why kRefuse, in words: 'the algorithm "pull" was asked for, but ...'.
std::string refusal_text(const Route& route, const BufferFacts& buffers);

}  // namespace rondo
