#include "ring/engine/route/route_table.h"

#include <algorithm>
#include <chrono>

#include "ring/base/hash.h"

namespace rondo {

void RouteTable::note_change(uint64_t what, uint64_t value) { digest_ = mix64(digest_ ^ mix64(value + what)); }

std::string RouteTable::exchanged(uint64_t slowest_ns) {
  if (++exchanges_ % kCallsBetweenTrials == 0) copies_.look_again();
  note_change(1, exchanges_);
  if (!timed_) return {};
  const auto longest = static_cast<uint64_t>(std::chrono::nanoseconds::max().count());
  const std::chrono::nanoseconds took(static_cast<int64_t>(std::clamp(slowest_ns, uint64_t{1}, longest)));
  const Key timed = *std::exchange(timed_, std::nullopt);
  note_change(2, slowest_ns);
  return copies_.learn(timed.first, timed.second, took);
}

bool RouteTable::tried_pull(const RouteQuestion& question, const BufferFacts& buffers) {
  const bool refuses = buffers.readable == false && question.algorithm == Algorithm::kWindow && !pull_refused_;
  if (!refuses) return false;
  pull_refused_ = true;
  note_change(3, 0);
  return true;
}

void RouteTable::began(const RouteQuestion& question, const Route& route) {
  if (route.timed) timed_ = key(question);
  if (route.reason == RouteReason::kNotRegistered) note_plain(key(question));
  if (route.reason != RouteReason::kKnownPlain) return;
  const auto found = plain_.find(key(question));
  note_change(4, --found->second);
  if (found->second == 0) plain_.erase(found);
}

// Of too many, the one that would ask first gives way.
void RouteTable::note_plain(const Key& key) {
  if (plain_.size() == kMostPlain) {
    plain_.erase(std::min_element(plain_.begin(), plain_.end(),
                                  [](const auto& one, const auto& other) { return one.second < other.second; }));
  }
  plain_[key] = kCallsUnasked;
  note_change(5, key.second);
}

}  // namespace rondo
