#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "ring/engine/route/copy_choice.h"
#include "ring/engine/route/route.h"

namespace rondo {

// What the ranks of a communicator have learned about routes from its calls. All ranks hold the same table at the same
// call: every change is a function of the calls, in call order, and of what all ranks have told each other. No rank
// puts in what it alone knows.
class RouteTable {
 public:
  // --- for decide()
  // Such a call goes over links without an exchange of cards, since the last one that asked did.
  bool known_plain(const RouteQuestion& question) const { return plain_.count(key(question)) != 0; }
  const CopyChoice& copies() const { return copies_; }
  // A rank could not read another's memory: no call pulls any more, unless it asks for it by name.
  bool pull_refused() const { return pull_refused_; }

  // --- changes
  static bool learns_from(const Route& route) {
    return route.timed || route.reason == RouteReason::kNotRegistered || route.reason == RouteReason::kKnownPlain;
  }
  // The ranks have exchanged cards, for the first time in a call. slowest_ns: the longest time that a rank told for the
  // call that was timed last; if there was none, it is not looked at. Returns a line to be logged, or "".
  std::string exchanged(uint64_t slowest_ns);
  // All ranks have tried to read the others' buffers (Route::Next::kTryPull). True: this call falls back, and no later
  // one tries, unless it asks for pull by name.
  bool tried_pull(const RouteQuestion& question, const BufferFacts& buffers);
  // A call has begun by this route. Nothing changes unless learns_from(route).
  void began(const RouteQuestion& question, const Route& route);

  // A digest of all changes: ranks whose tables differ have different ones, but for 1 case in 2^32.
  uint32_t version() const { return static_cast<uint32_t>(digest_); }

 private:
  // Calls that do not ask after one that asked in vain. An exchange is up to a quarter of a call (router.cc), and
  // registered buffers go over links for so long after plain ones.
  static constexpr uint32_t kCallsUnasked = 31;
  // Kinds of calls that are known to go over links.
  static constexpr size_t kMostPlain = 1024;
  // Between trials of the ways to copy, exchanges. Six trials, of which half take up to three times as long.
  static constexpr uint64_t kCallsBetweenTrials = 2048;

  using Key = std::pair<Collective, uint64_t>;  // bytes
  static Key key(const RouteQuestion& question) { return {question.collective, question.bytes}; }
  void note_plain(const Key& key);
  void note_change(uint64_t what, uint64_t value);

  std::map<Key, uint32_t> plain_;  // calls that need not ask, from now on
  CopyChoice copies_;
  std::optional<Key> timed_;  // the call whose time the next exchange tells
  uint64_t exchanges_ = 0;
  bool pull_refused_ = false;
  uint64_t digest_ = 0;
};

}  // namespace rondo
