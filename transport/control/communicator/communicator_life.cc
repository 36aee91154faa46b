#include "transport/control/communicator/communicator_life.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/control/earlier.h"

namespace rondo {

CommunicatorLife::CommunicatorLife(const MemberNames& members, const RankView& rank) : members_(members), rank_(rank) {
  for (const int member : members.ranks()) {
    if (member != rank.settings.rank) others_[member];
  }
}

// After a failure stage_ is that of the rank whose error it is.
void CommunicatorLife::made() {
  if (!failure_) stage_ = Stage::kUse;
}

// From here on a death is no failure: what the members still do with the communicator is their own.
bool CommunicatorLife::close(uint64_t last_sequence, const std::set<int>& streams) {
  if (closing_) return false;
  closing_ = true;
  losses_.clear();
  suspicions_.clear();
  streams_due_.clear();
  for (const auto& [peer, member] : others_) {
    // After shrink() the members that go on expect no goodbye; a member that left before may still wait for this one.
    if (rank_.departures.gone(peer) || (goes_on_ && !member.left)) continue;
    const bool streamed = streams.count(peer) != 0;
    rank_.actions.push_back(control::Send{peer, ByeMessage{members_.communicator(), last_sequence, streamed}});
  }
  look_for_last();
  return true;
}

bool CommunicatorLife::all_left() const {
  // After a failure no rank needs a goodbye: the failure was sent before. Nor do those that go on: they have agreed.
  if (failure_ || goes_on_) return true;
  return std::none_of(others_.begin(), others_.end(), [](const auto& entry) { return entry.second.here(); });
}

// A peer that has left or is lost closes its links: that is no failure of its own.
void CommunicatorLife::link_failed(Time now, int peer, const Error& error) {
  if (failure_ || closing_) return;
  const auto found = others_.find(peer);
  if (found == others_.end() || !found->second.here()) return;
  for (const Suspicion& suspicion : suspicions_) {
    if (suspicion.peer == peer) return;
  }
  suspicions_.push_back({peer, error, now + grace_ms(now, peer, error)});
}

// How long a better reason than the end of a link may take to come.
CommunicatorLife::Time CommunicatorLife::grace_ms(Time now, int peer, const Error& error) const {
  // Damage has no better reason. The other end's link closes because of it, and must not report that first.
  if (error.code == ErrorCode::kCorrupt) return 0;
  // A silent peer may have closed its link because it hears nothing from this rank, either. Its abort cannot come, so
  // this rank waits for its own suspicion, which names the cause.
  const Liveness::Settings& watched = rank_.settings.liveness;
  const Time silence = rank_.liveness.silence(now, peer), suspicion = watched.suspicion_ms;
  const bool silent = suspicion > 0 && silence >= Liveness::kWarnHeartbeats * watched.heartbeat_ms;
  return rank_.settings.link_grace_ms + (silent ? std::max<Time>(suspicion - silence, 0) : 0);
}

void CommunicatorLife::receive(int from, const AbortMessage& message) {
  if (failure_) return;
  Error error = message.error;
  // Deaths that this rank has seen and the sender had not: named as well.
  for (const auto& [peer, loss] : losses_) {
    if (std::find(error.ranks.begin(), error.ranks.end(), peer) == error.ranks.end()) name_too(peer, loss, error);
  }
  stage_ = message.stage;
  fail(std::move(error), Audience::kNeighbors, from);
}

void CommunicatorLife::receive(Time now, int from, const ByeMessage& message) {
  const auto member = others_.find(from);
  const bool again = member != others_.end() && member->second.left && !rank_.departures.gone(from) &&
                     rank_.settings.is_neighbor(from);
  if (!again || !closing_) return left(now, from, message);
  for (auto& [peer, other] : others_) other.left = true;  // as `from` has heard
  look_for_last();
}

// Beyond kMaxFullMesh ranks a goodbye travels over other ranks, and is lost if one of these ends first. So a rank that
// has heard all goodbyes sends its own once more to its neighbors before it ends. That second one says that all members
// have left (receive()).
void CommunicatorLife::look_for_last() {
  if (!closing_ || heard_all_ || failure_ || rank_.settings.all_are_neighbors() || !all_left()) return;
  heard_all_ = true;
  for (const int peer : rank_.settings.neighbors) {
    if (!has(peer) || rank_.departures.gone(peer)) continue;
    rank_.actions.push_back(control::Send{peer, ByeMessage{members_.communicator(), 0, false}});
  }
}

// A goodbye that waited for this stream is delivered now.
void CommunicatorLife::streamed(int peer) {
  const auto member = others_.find(peer);
  if (member == others_.end()) return;
  streamed_.insert(peer);
  if (streams_due_.erase(peer) == 0) return;
  rank_.actions.push_back(control::PeerLeft{members_.communicator(), peer, member->second.last_sequence});
}

// What it has sent may come by another way, and later: a stream that has come is read to its end.
void CommunicatorLife::left(Time now, int peer, const ByeMessage& goodbye) {
  const auto found = others_.find(peer);
  if (found == others_.end() || !found->second.here()) return;
  found->second.left = true;
  found->second.last_sequence = goodbye.last_sequence;
  ++goodbyes_;
  trust(peer);
  if (goodbye.streams && !streamed_.count(peer) && !failure_ && !closing_) {
    streams_due_[peer] = now + rank_.settings.stream_ms;
  } else {
    rank_.actions.push_back(control::PeerLeft{members_.communicator(), peer, goodbye.last_sequence});
  }
  look_for_last();
}

// Deaths within collect_ms become one failure. After a goodbye a death matters only if the stream that it announced has
// not come: nothing will come any more.
void CommunicatorLife::lost(Time now, int peer, const Loss& loss) {
  const auto found = others_.find(peer);
  if (found == others_.end() || found->second.lost) return;
  if (found->second.left && streams_due_.erase(peer) == 0) return;
  found->second.lost = true;
  trust(peer);  // its links failed by its death
  if (closing_) return look_for_last();
  if (failure_) return lose_too(peer, loss);
  if (losses_.empty()) losses_due_ = now + rank_.settings.collect_ms;
  losses_.emplace(peer, loss);
}

// A death after the failure was delivered. Deaths at once are seen apart where a process takes long to end (much
// memory, busy cores), so the loss goes on to name them; what failed otherwise keeps its reason.
void CommunicatorLife::lose_too(int peer, const Loss& loss) {
  Error& error = *failure_;
  const bool named = std::find(error.ranks.begin(), error.ranks.end(), peer) != error.ranks.end();
  if (named && loss.code == error.code) return;
  if (named || error.code != loss.code) {
    rank_.actions.push_back(control::Note{too_text(peer, loss)});
    return;
  }
  name_too(peer, loss, error);
  rank_.actions.push_back(control::Fail{members_.communicator(), error, stage_});
}

std::string CommunicatorLife::too_text(int peer, const Loss& loss) const {
  return loss.code == ErrorCode::kPeerLost ? fmt::format("{} died too: {}", members_.name(peer), loss.why)
                                           : fmt::format("{} {}", members_.name(peer), loss.why);
}

void CommunicatorLife::name_too(int peer, const Loss& loss, Error& error) const {
  error.ranks.push_back(peer);
  error.message += "; " + too_text(peer, loss);
}

// The group has lost a member either way: the culprit if it is one, else the rank that gave up.
void CommunicatorLife::resigned(Time now, int peer, const std::string& why) {
  const auto found = others_.find(peer);
  if (found == others_.end() || !found->second.here()) return;
  if (losses_.empty()) return lost(now, peer, {why, ErrorCode::kPeerLost});
  found->second.lost = true;
  trust(peer);
}

// Drops what is suspected of a peer that has gone: its links broke because it went.
void CommunicatorLife::trust(int peer) {
  std::erase_if(suspicions_, [peer](const Suspicion& suspicion) { return suspicion.peer == peer; });
}

void CommunicatorLife::start_failed(const Error& error) {
  if (stage_ == Stage::kMaking) fail(error);
}

// A neighbor has given this rank up. A communicator without that neighbor stays sound: its members still hear this
// rank.
void CommunicatorLife::given_up() {
  const bool sound = std::none_of(others_.begin(), others_.end(),
                                  [this](const auto& member) { return rank_.departures.given_up_by(member.first); });
  if (!sound) fail({ErrorCode::kUnresponsive, rank_.departures.given_up(), {rank_.settings.rank}});
}

// Deaths before broken links: a link breaks because of a death more often than the other way around.
void CommunicatorLife::tick(Time now) {
  if (failure_ || fail_if_due(now)) return;
  const auto due = std::find_if(suspicions_.begin(), suspicions_.end(),
                                [now](const Suspicion& suspicion) { return suspicion.due <= now; });
  if (due != suspicions_.end()) fail(link_error(*due));
}

// By deaths, or by a stream that has not come.
bool CommunicatorLife::fail_if_due(Time now) {
  if (!losses_.empty() && losses_due_ <= now) {
    fail(loss_error(losses_, "died or was cut off", [this](int peer) { return members_.name(peer); }));
    return true;
  }
  const auto missing = std::find_if(streams_due_.begin(), streams_due_.end(),
                                    [now](const auto& stream) { return stream.second <= now; });
  if (missing == streams_due_.end()) return false;
  fail({ErrorCode::kNetwork,
        fmt::format("{} left after it had sent messages to {}, and their connection has not come within {}",
                    members_.name(missing->first), members_.own_name(), time_text(rank_.settings.stream_ms)),
        {missing->first}});
  return true;
}

// A link that just ended says no more than that the peer is gone (kPeerLost); a specific code is kept.
Error CommunicatorLife::link_error(const Suspicion& suspicion) const {
  const ErrorCode code = suspicion.error.code;
  const bool specific = code == ErrorCode::kProtocol || code == ErrorCode::kMismatch || code == ErrorCode::kSystem ||
                        code == ErrorCode::kNetwork || code == ErrorCode::kCorrupt;
  const bool own = code == ErrorCode::kSystem;  // its own system's refusal
  return {specific ? code : ErrorCode::kPeerLost,
          fmt::format("the data connection between {} and {} failed: {}", members_.own_name(),
                      members_.name(suspicion.peer), suspicion.error.message),
          {own ? rank_.settings.rank : suspicion.peer}};
}

std::optional<CommunicatorLife::Time> CommunicatorLife::next_time() const {
  std::optional<Time> next;
  if (!losses_.empty()) next = losses_due_;
  for (const Suspicion& suspicion : suspicions_) next = earlier(next, suspicion.due);
  for (const auto& [peer, due] : streams_due_) next = earlier(next, due);
  return next;
}

// Members that have left are not told: they wait for nothing of this communicator.
void CommunicatorLife::fail(Error error, Audience audience, int except) {
  if (failure_) return;
  failure_ = error;
  losses_.clear();
  suspicions_.clear();
  streams_due_.clear();
  for (const auto& [peer, member] : others_) {
    if (peer == except || member.left || rank_.departures.gone(peer)) continue;
    if (audience == Audience::kMembers || rank_.settings.is_neighbor(peer)) {
      rank_.actions.push_back(control::Send{peer, AbortMessage{members_.communicator(), stage_, error}});
    }
  }
  rank_.actions.push_back(control::Fail{members_.communicator(), std::move(error), stage_});
}

}  // namespace rondo
