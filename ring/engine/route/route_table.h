#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ring/base/hash.h"
#include "ring/engine/route/prepared_call.h"
#include "ring/engine/route/route.h"
#include "ring/engine/route/tuner.h"

namespace rondo {

// Calls of one key share their trials.
TunerKey tuner_key(const PreparedCall& call);

// What the ranks of a communicator have learned about routes from its calls. All ranks hold the same table at the same
// call: every change is a function of the calls, in call order, and of what all ranks have exchanged. No rank
// puts in what it alone knows.
class RouteTable {
 public:
  // For decide(), but for `next`, which is next() below. What it does not look at is not looked up.
  TableFacts facts(const PreparedCall& call, const Answers& answers) const;
  // What the trials of such calls want next. Changes nothing: decide() may be asked several times for one call.
  Trials::Next next(const PreparedCall& call, const RouteTerms& terms) const;
  // Such a call runs as for plain buffers without an exchange of cards, since the last one that asked did.
  bool known_plain(const PreparedCall& call) const {
    const auto found = plain_.find(key(call));
    return found != plain_.end() && found->second > 0;
  }
  const Tuner& tuner() const { return tuner_; }
  // A rank could not read another's memory: no call pulls any more, unless it asks for it by name.
  bool pull_refused() const { return pull_refused_; }

  // The call takes the route that keep() has kept: it follows from the table alone, where nothing has changed that it
  // follows from.
  bool goes_on(const PreparedCall& call) const {
    if (!call.route || call.route_changes != changes_) return false;
    if (call.unasked != nullptr && *call.unasked == 0) return false;
    return call.tuned_kind == nullptr || (!tuner_.due() && call.tuned_kind->trials.is_settled());
  }

  // --- changes
  static bool learns_from(const Route& route) { return route.tuned || route.buffers != Route::Buffers::kAny; }
  // The ranks have exchanged their times; records[r]: of rank r. Returns lines to be logged.
  std::vector<std::string> learn_times(std::span<const TimeRecord> records, Clocks clocks);
  // All ranks have tried to read the others' buffers (Route::Next::kTryPull). True: this call falls back, and no later
  // one tries, unless it asks for pull by name.
  bool tried_pull(const PreparedCall& call, bool readable);
  // A call has begun by this route. Nothing changes unless learns_from(route). If it is timed, its time is recorded as
  // the last of tuner().pending().
  void began(PreparedCall& call, const RouteTerms& terms, const Route& route);
  // Such a call has begun as goes_on() says.
  void went_on(const PreparedCall& call) {
    if (call.tuned_kind != nullptr) {
      tuner_.began(*call.tuned_kind);
      note_began(*call.route);
    }
    if (call.unasked != nullptr) note_change(4, --*call.unasked);
  }
  // The call has begun by this route, which was decided with these answers: equal ones may go on with it.
  void keep(PreparedCall& call, const Route& route, const Answers& answers);

  // A digest of all changes: tables that differ have different ones.
  uint64_t version() const { return digest_; }

 private:
  // Calls that do not ask after one that asked in vain. An exchange is up to a quarter of a call (router.cc), and
  // registered buffers go like plain ones for so long after plain ones.
  static constexpr uint32_t kCallsUnasked = 31;
  // Kinds of calls that are known to be plain.
  static constexpr size_t kMostPlain = 1024;

  using Key = std::pair<Collective, uint64_t>;  // bytes
  static Key key(const PreparedCall& call) { return {call.collective, call.bytes}; }
  void note_plain(const Key& key);
  void count_changes() { changes_ = tuner_.changes() + forgotten_; }
  void note_began(const Route& tuned) {
    note_change(2, (static_cast<uint64_t>(tuned.algorithm) << 2) + (tuned.streamed ? 2 : 0) + (tuned.timed ? 1 : 0));
  }
  // what: the kind of change, 1 to 5, so that equal values of two kinds differ.
  void note_change(uint64_t what, uint64_t value) { digest_ = mix64(digest_ ^ mix64(value + what)); }

  std::map<Key, uint32_t> plain_;  // calls that need not ask, from now on
  uint64_t forgotten_ = 0;         // kinds that gave way there
  uint64_t changes_ = 0;           // of the tuner, and kinds that gave way
  Tuner tuner_;
  bool pull_refused_ = false;
  // Depends on the order of changes: ranks that have made other changes differ from then on.
  uint64_t digest_ = 0;
};

}  // namespace rondo
