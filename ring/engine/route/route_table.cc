#include "ring/engine/route/route_table.h"

#include <algorithm>
#include <bit>

namespace rondo {

TunerKey tuner_key(const PreparedCall& call) {
  return {call.collective, static_cast<int>(std::bit_width(call.bytes)), call.root,
          static_cast<int>(call.element_bytes()), call.ways};
}

std::vector<std::string> RouteTable::learn_times(std::span<const TimeRecord> records, Clocks clocks) {
  for (const TimeRecord& record : records) {
    for (const TimedCall& call : record) note_change(1, call.begin_ns ^ mix64(call.end_ns));
  }
  std::vector<std::string> lines = tuner_.learn(records, clocks);
  count_changes();
  return lines;
}

TableFacts RouteTable::facts(const PreparedCall& call, const Answers& answers) const {
  TableFacts facts;
  facts.pull_refused = pull_refused_;
  facts.streamed = tuner_.streamed();
  facts.known_plain = !answers.buffers && (over_windows(call.algorithm) || call.registered_first) && known_plain(call);
  facts.times_due = tuner_.due();
  return facts;
}

Trials::Next RouteTable::next(const PreparedCall& call, const RouteTerms& terms) const {
  return tuner_.next(tuner_key(call), usable_ways(call, terms, pull_refused_).all(), stores_to_try(terms));
}

bool RouteTable::tried_pull(const PreparedCall& call, bool readable) {
  const bool by_name = call.algorithm == Algorithm::kPull;
  if (readable || by_name || pull_refused_) return false;
  pull_refused_ = true;
  tuner_.begin_again();
  count_changes();
  note_change(3, 0);
  return true;
}

void RouteTable::began(PreparedCall& call, const RouteTerms& terms, const Route& route) {
  if (route.tuned) {
    call.tuned_kind =
        &tuner_.began(tuner_key(call), usable_ways(call, terms, pull_refused_).all(), stores_to_try(terms));
    note_began(route);
  }
  if (route.buffers == Route::Buffers::kPlain) note_plain(key(call));
  count_changes();
  if (route.buffers != Route::Buffers::kKnownPlain) return;
  note_change(4, --plain_.at(key(call)));
}

// None of what is asked each time, or of trials that are under way.
void RouteTable::keep(PreparedCall& call, const Route& route, const Answers& answers) {
  call.route.reset();
  // An answer belongs to this call's buffers, and says nothing of the next call's.
  if (route.next != Route::Next::kRun || answers.any()) return;
  if (route.tuned && (route.timed || route.reason != RouteReason::kFaster)) return;
  call.route = route;
  call.route_changes = changes_;
  if (!route.tuned) call.tuned_kind = nullptr;
  call.unasked = route.buffers == Route::Buffers::kKnownPlain ? &plain_.at(key(call)) : nullptr;
}

// A full plain_ drops the kind that would ask first.
void RouteTable::note_plain(const Key& key) {
  if (plain_.size() == kMostPlain && plain_.count(key) == 0) {
    plain_.erase(std::min_element(plain_.begin(), plain_.end(),
                                  [](const auto& one, const auto& other) { return one.second < other.second; }));
    ++forgotten_;
  }
  plain_[key] = kCallsUnasked;
  note_change(5, key.second);
}

}  // namespace rondo
