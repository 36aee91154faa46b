#include "transport/control/departures.h"

#include <fmt/format.h>

#include "transport/control/start_logic.h"

namespace rondo {

// Each rank with its own reason; the ranks are in ascending order.
Error loss_error(const std::map<int, Loss>& losses, const char* died, const std::function<std::string(int)>& name) {
  Error error{ErrorCode::kUnresponsive, "", {}};
  for (const auto& [peer, loss] : losses) {
    if (!error.message.empty()) error.message += "; ";
    if (loss.code == ErrorCode::kPeerLost) {
      error.code = ErrorCode::kPeerLost;
      error.message += fmt::format("{} {} ({})", name(peer), died, loss.why);
    } else {
      error.message += fmt::format("{} {}", name(peer), loss.why);
    }
    error.ranks.push_back(peer);
  }
  return error;
}

Departures::Departures(const ControlSettings& settings, control::Actions& actions)
    : settings_(settings), actions_(actions), map_(static_cast<int>(settings.names.size()), settings.neighbors_of) {}

void Departures::connection_ended(Time now, int peer, const std::string& why) {
  if (gone(peer)) return;
  if (given_up_by(peer)) {  // it has ended it, and lives
    left_.insert(peer);
    return;
  }
  lose(peer, {why, ErrorCode::kPeerLost});
  cut_off(now, peer, LostMessage::Fate::kDied, why);
}

void Departures::receive(Time, int from, const LeaveMessage&) {
  if (gone(from)) return;
  leave(from);
  tell_neighbors(from,
                 LostMessage{static_cast<uint32_t>(from), static_cast<uint32_t>(from), LostMessage::Fate::kLeft, ""});
}

// Two kinds of message. peer != by: their connection is no more, and `peer` may still be reached by others, so it is
// lost only if the look in tick() finds no way to it. peer == by: that rank's process is no more, or has left.
// Ranks outside the world are a peer's mistake, and ignored.
void Departures::receive(Time now, int from, const LostMessage& message) {
  const int peer = static_cast<int>(message.rank), by = static_cast<int>(message.by);
  if (!settings_.is_rank(peer) || !settings_.is_rank(by)) return;
  const bool died = message.fate == LostMessage::Fate::kDied;
  const Loss loss{message.why, died ? ErrorCode::kPeerLost : ErrorCode::kUnresponsive};
  if (peer != by) {
    if (peer == settings_.rank && by == from && !died && given_up_by_.insert(from).second) {
      if (given_up_.empty()) given_up_ = fmt::format("{} {}", settings_.name(settings_.rank), message.why);
      news_.push_back({News::Kind::kGivenUp, from});
    }
    if (!note_cut(now, peer, by)) return;
    reported_[peer] = loss;
    return tell_neighbors(from, message);
  }
  // A rank that this one is connected to speaks for itself.
  if (peer == settings_.rank || settings_.is_neighbor(peer) || gone(peer)) return;
  if (message.fate == LostMessage::Fate::kLeft) {
    leave(peer);
  } else {
    lose(peer, loss);
  }
  tell_neighbors(from, message);
}

// Ranks that the error calls dead are lost; the one that tells of them is not.
void Departures::start_failed(int from, const Error& error) {
  if (gone(from)) return;
  const Error own = heard_start_error(settings_.rank, from, settings_.name(from), error);
  const std::string why = fmt::format("{} gave up its start: {}", settings_.name(from), error.message);
  if (own.code != ErrorCode::kPeerLost) {
    resigned_.emplace(from, why);
    return fail_start(own);
  }
  for (const int culprit : own.ranks) {
    if (!settings_.is_rank(culprit) || gone(culprit)) continue;
    lose(culprit, {why, ErrorCode::kPeerLost});
    const auto rank = static_cast<uint32_t>(culprit);
    tell_neighbors(from, LostMessage{rank, rank, LostMessage::Fate::kDied, why});
  }
  if (gone(from)) return;  // it blames itself
  resigned_.emplace(from, why);
  news_.push_back({News::Kind::kResigned, from});
}

// Only a rank that is connected to `peer`, or is that rank, knows that it lives, and answers. The start of `by` ends
// then.
void Departures::unreached(int peer, int by, const std::string& why) {
  if ((peer != settings_.rank && !settings_.is_neighbor(peer)) || gone(peer) || gone(by)) return;
  fail_start(parted_error({peer, by, settings_.rank, settings_.name(peer), settings_.name(by), why}));
  actions_.emplace_back(control::Send{by, AbortMessage{0, Stage::kMaking, *start_failure_}});
}

// It is told as well: should it go on, it knows why nobody speaks to it any more. The message is queued before Drop
// ends the connection.
void Departures::give_up(Time now, int peer) {
  if (gone(peer)) return;
  const LostMessage message{
      static_cast<uint32_t>(peer), static_cast<uint32_t>(settings_.rank), LostMessage::Fate::kUnresponsive,
      fmt::format("has not answered for {} (RONDO_SUSPICION_MS): its process is stopped, or its host is cut off",
                  time_text(settings_.liveness.suspicion_ms))};
  actions_.emplace_back(control::Send{peer, message});
  actions_.emplace_back(control::Drop{peer});
  lose(peer, {message.why, ErrorCode::kUnresponsive});
  cut_off(now, peer, message.fate, message.why);
}

void Departures::way_failed(int peer) {
  if (!once_failed_.insert(peer).second) parted_.insert(peer);
}

// A rank may be cut off from some of its neighbors and live: it is lost to this one once no way leads to it.
void Departures::tick(Time now) {
  if (look_due_ < 0 || now < look_due_) return;
  look_due_ = -1;
  std::vector<int> connected;
  for (const int peer : settings_.neighbors) {
    if (!gone(peer)) connected.push_back(peer);
  }
  const std::vector<int> next = map_.next_hops(settings_.rank, connected);
  for (int peer = 0; peer < static_cast<int>(next.size()); ++peer) {
    if (peer == settings_.rank || next[static_cast<size_t>(peer)] >= 0 || gone(peer)) continue;
    const auto reported = reported_.find(peer);
    lose(peer, reported != reported_.end() ? reported->second
                                           : Loss{"all that were connected to it are lost", ErrorCode::kPeerLost});
  }
}

std::optional<Departures::Time> Departures::next_time() const {
  return look_due_ < 0 ? std::nullopt : std::optional<Time>(look_due_);
}

// A rank that has left and one whose start failed send nothing any more, as little as one that is lost.
bool Departures::gone(int peer) const {
  return lost_.count(peer) != 0 || left_.count(peer) != 0 || resigned_.count(peer) != 0;
}

std::optional<Error> Departures::start_failure() const {
  if (lost_.empty()) return start_failure_;
  return loss_error(lost_, "died while the group was starting", [this](int peer) { return settings_.name(peer); });
}

// No set shrinks, so an equal count means that nothing has changed.
size_t Departures::count() const {
  return lost_.size() + left_.size() + resigned_.size() + ended_.size() + given_up_by_.size() + parted_.size();
}

void Departures::lose(int peer, const Loss& loss) {
  lost_.emplace(peer, loss);
  map_.forget(peer);
  actions_.emplace_back(control::Gone{peer, true});
  news_.push_back({News::Kind::kLost, peer});
}

void Departures::leave(int peer) {
  left_.insert(peer);
  map_.forget(peer);
  actions_.emplace_back(control::Gone{peer, false});
  news_.push_back({News::Kind::kLeft, peer});
}

// The way between this rank and a neighbor is no more.
void Departures::cut_off(Time now, int peer, LostMessage::Fate fate, const std::string& why) {
  if (!note_cut(now, settings_.rank, peer)) return;
  tell_neighbors(peer, LostMessage{static_cast<uint32_t>(peer), static_cast<uint32_t>(settings_.rank), fate, why});
}

// False: it was known, or all are connected to this rank, and speak for themselves.
bool Departures::note_cut(Time now, int one, int other) {
  if (settings_.all_are_neighbors() || !map_.cut(one, other)) return false;
  if (look_due_ < 0) look_due_ = now + settings_.look_ms;
  actions_.emplace_back(control::Cut{one, other});
  return true;
}

// Nobody died, but the communicator of all ranks cannot come about.
void Departures::fail_start(const Error& error) {
  if (!start_failure_) start_failure_ = error;
  news_.push_back({News::Kind::kStartFailed});
}

// Only needed where not every pair is connected.
void Departures::tell_neighbors(int except, const LostMessage& message) {
  if (settings_.all_are_neighbors()) return;
  for (const int peer : settings_.neighbors) {
    if (peer != except && !gone(peer)) actions_.emplace_back(control::Send{peer, message});
  }
}

}  // namespace rondo
