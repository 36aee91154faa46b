#include "transport/control/liveness.h"

#include <algorithm>

namespace rondo {

// The first beat is due at once: the peer hears this rank from the beginning.
void Liveness::watch(Time now, int peer) {
  if (settings_.heartbeat_ms <= 0) return;
  if (watched_.empty()) next_beat_ = now;
  watched_[peer] = {now, false, 0};
}

// Only a silence that was warned of is worth saying that it is over.
void Liveness::heard(Time now, int peer) {
  const auto found = watched_.find(peer);
  if (found == watched_.end()) return;
  if (found->second.warned) found->second.was_silent_ms = std::max<Time>(now - found->second.heard_at, 1);
  found->second.warned = false;
  found->second.heard_at = now;
}

// The beat comes first: it may find that this rank stood still, and then no silence counts. The next warning is put off
// after the loop, so that one warning names all ranks that are silent now.
Liveness::Findings Liveness::tick(Time now) {
  Findings found;
  if (watched_.empty()) return found;
  if (now >= next_beat_) {
    found.beat = true;
    found.stopped_ms = beat(now);
  }
  for (auto at = watched_.begin(); at != watched_.end();) {
    auto& [rank, peer] = *at;
    const Time silence = now - peer.heard_at;
    if (peer.was_silent_ms > 0) found.back.push_back({rank, peer.was_silent_ms});
    peer.was_silent_ms = 0;
    if (settings_.suspicion_ms > 0 && silence >= settings_.suspicion_ms) {
      found.unresponsive.push_back({rank, silence});
      at = watched_.erase(at);
      continue;
    }
    if (!peer.warned && silence >= warn_ms() && now >= next_warning_) {
      peer.warned = true;
      found.silent.push_back({rank, silence});
    }
    ++at;
  }
  if (!found.silent.empty()) next_warning_ = now + kWarnPauseMs;
  return found;
}

// For how long this rank stood still; 0: it did not.
Liveness::Time Liveness::beat(Time now) {
  const Time late = now - next_beat_;
  next_beat_ = now + settings_.heartbeat_ms;
  const bool stopped = late > settings_.heartbeat_ms;
  for (auto& [rank, peer] : watched_) peer.heard_at = stopped ? now : std::min(now, peer.heard_at + late);
  return stopped ? late : 0;
}

// A rank that was warned of needs no look before its suspicion. A return is found by the next beat.
std::optional<Liveness::Time> Liveness::next_time() const {
  if (watched_.empty()) return std::nullopt;
  Time next = next_beat_;
  for (const auto& [rank, peer] : watched_) {
    if (!peer.warned) next = std::min(next, std::max(next_warning_, peer.heard_at + warn_ms()));
    if (settings_.suspicion_ms > 0) next = std::min(next, peer.heard_at + settings_.suspicion_ms);
  }
  return next;
}

Liveness::Time Liveness::silence(Time now, int peer) const {
  const auto found = watched_.find(peer);
  return found == watched_.end() ? 0 : now - found->second.heard_at;
}

}  // namespace rondo
