#include "transport/control/control_logic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "ring/base/check.h"
#include "transport/control/blame.h"
#include "transport/control/start_logic.h"

namespace rondo {
namespace {

// Communicators that others have opened and this rank has not, or has closed already: more than a program opens at
// once, and less than a megabyte.
constexpr size_t kMaxEarly = 1024;
constexpr size_t kMaxClosed = 4096;

}  // namespace

ControlLogic::ControlLogic(Settings settings)
    : settings_(std::move(settings)),
      map_(static_cast<int>(settings_.names.size()), settings_.neighbors_of),
      liveness_(settings_.liveness) {}

std::vector<ControlLogic::Action> ControlLogic::take_actions() { return std::exchange(actions_, {}); }

std::optional<ControlLogic::Time> ControlLogic::next_time(const Group& group) {
  std::optional<Time> next;
  const auto consider = [&](Time time) { next = next ? std::min(*next, time) : time; };
  if (!group.losses.empty()) consider(group.losses_due);
  for (const Suspicion& suspicion : group.suspicions) consider(suspicion.due);
  if (group.stall && group.stall->blame_due >= 0) consider(group.stall->blame_due);
  if (group.wait) consider(group.wait->due);
  for (const auto& [peer, due] : group.streams_due) consider(due);
  if (group.membership) {
    if (const auto due = group.membership->next_time()) consider(*due);
  }
  return next;
}

std::optional<ControlLogic::Time> ControlLogic::next_time() const {
  std::optional<Time> next;
  const auto consider = [&](Time time) { next = next ? std::min(*next, time) : time; };
  for (const auto& [id, group] : groups_) {
    if (const auto due = next_time(group)) consider(*due);
  }
  if (look_due_ >= 0) consider(look_due_);
  if (const auto silence = liveness_.next_time()) consider(*silence);
  return next;
}

// --- this rank

void ControlLogic::open(Time now, uint64_t communicator, std::vector<int> members) {
  RONDO_CHECK(!is_open(communicator), "a communicator is opened once");
  Group& group = groups_[communicator];
  group.id = communicator;
  for (int member : members) {
    if (member != settings_.rank) group.members[member];
  }
  group.order = std::move(members);
  Early before;
  if (const auto found = early_.find(communicator); found != early_.end()) {
    before = std::move(found->second);
    early_.erase(found);
  }
  // In the order in which a member learns of them that was there in time: a death, the abort that it brought about, and
  // then the goodbyes of those that gave up, which would otherwise be taken for the cause.
  fail_if_given_up(communicator, group);
  for (const auto& [peer, loss] : lost_) {
    if (!before.goodbyes.count(peer)) lose(now, communicator, group, peer, loss);
  }
  for (const auto& [peer, why] : resigned_) excuse(now, communicator, group, peer);
  if (start_failure_) fail(communicator, group, *start_failure_, Audience::kMembers, -1);
  if (before.abort) on(now, before.abort->first, before.abort->second);
  group.streamed = std::move(before.streamed);
  for (const auto& [peer, goodbye] : before.goodbyes) member_left(now, group, peer, goodbye);
  for (const int peer : left_) member_left(now, group, peer, {communicator});
}

void ControlLogic::made(uint64_t communicator) {
  Group* group = find(communicator);
  if (group != nullptr && !group->failure) group->stage = Stage::kUse;
}

bool ControlLogic::close(uint64_t communicator, uint64_t last_sequence, const std::set<int>& streams) {
  Group* group = find(communicator);
  if (group == nullptr || group->closing) return false;
  group->closing = true;
  group->losses.clear();
  group->suspicions.clear();
  group->streams_due.clear();
  for (const auto& [peer, member] : group->members) {
    const bool streamed = streams.count(peer) != 0;
    // Those that go on have agreed; one that left before waits.
    if (!gone(peer) && (member.left || !goes_on(*group)))
      actions_.push_back(Send{peer, ByeMessage{communicator, last_sequence, streamed}});
  }
  look_for_last(communicator, *group);
  return true;
}

bool ControlLogic::idle(uint64_t communicator) const {
  const Group* group = find(communicator);
  return idle() && (group == nullptr || !next_time(*group));
}

bool ControlLogic::all_left(uint64_t communicator) const {
  const Group* group = find(communicator);
  // After a failure no rank needs a goodbye: the failure was sent before. Nor do those that go on: they have agreed.
  if (group == nullptr || group->failure || goes_on(*group)) return true;
  return std::all_of(group->members.begin(), group->members.end(),
                     [](const auto& entry) { return entry.second.left || entry.second.lost; });
}

void ControlLogic::forget(uint64_t communicator) {
  const auto group = groups_.find(communicator);
  if (group == groups_.end()) return;
  Closed& closed = closed_[communicator];
  closed.failure = std::move(group->second.failure);
  closed.stage = group->second.stage;
  if (group->second.membership) closed.decision = group->second.membership->decision();
  groups_.erase(group);
  closed_order_.push_back(communicator);
  if (closed_order_.size() <= kMaxClosed) return;
  closed_.erase(closed_order_.front());
  closed_order_.pop_front();
}

void ControlLogic::link_failed(Time now, uint64_t communicator, int peer, const Error& error) {
  Group* group = find(communicator);
  if (group == nullptr || group->failure || group->closing) return;
  const auto found = group->members.find(peer);
  if (found == group->members.end() || found->second.left || found->second.lost) return;
  for (const Suspicion& suspicion : group->suspicions) {
    if (suspicion.peer == peer) return;
  }
  group->suspicions.push_back({peer, error, now + grace_ms(now, peer, error)});
}

// How long a better reason than the end of a link may take to come.
ControlLogic::Time ControlLogic::grace_ms(Time now, int peer, const Error& error) const {
  // Damage has none; and the other end, whose link closes of it, must not be faster with a worse one.
  if (error.code == ErrorCode::kCorrupt) return 0;
  // A peer that is silent has closed its link, perhaps, since it hears nothing either: its word about that does not
  // come, and the suspicion is due soon.
  const Time silence = liveness_.silence(now, peer), suspicion = settings_.liveness.suspicion_ms;
  const bool silent = suspicion > 0 && silence >= Liveness::kWarnHeartbeats * settings_.liveness.heartbeat_ms;
  return settings_.link_grace_ms + (silent ? std::max<Time>(suspicion - silence, 0) : 0);
}

void ControlLogic::way_failed(Time now, uint64_t communicator, int peer, const Error& error) {
  if (!once_failed_.insert(peer).second) parted_.insert(peer);
  link_failed(now, communicator, peer, error);
}

void ControlLogic::abort(Time, uint64_t communicator, const Error& error) {
  Group* group = find(communicator);
  if (group != nullptr) fail(communicator, *group, error, Audience::kMembers, -1);
}

void ControlLogic::decline(Time, uint64_t communicator, const std::vector<int>& members, const Error& error) {
  for (const int peer : members) {
    if (peer != settings_.rank && !gone(peer))
      actions_.push_back(Send{peer, AbortMessage{communicator, Stage::kMaking, error}});
  }
}

void ControlLogic::leave() {
  liveness_.forget_all();
  for (int peer : settings_.neighbors) {
    if (!gone(peer)) actions_.push_back(Send{peer, LeaveMessage{}});
  }
}

// --- from outside

void ControlLogic::streamed(uint64_t communicator, int peer) {
  Group* group = find(communicator);
  if (group == nullptr) {
    if (Early* before = early(communicator)) before->streamed.insert(peer);
    return;
  }
  if (group->members.count(peer) == 0) return;
  group->streamed.insert(peer);
  if (group->streams_due.erase(peer) == 0) return;
  actions_.push_back(PeerLeft{communicator, peer, group->members[peer].last_sequence});
}

void ControlLogic::receive(Time now, int from, const ControlBody& body) {
  // What a rank says that was given up, and goes on, is of no use to those who did.
  if (const auto lost = lost_.find(from); lost != lost_.end() && lost->second.code == ErrorCode::kUnresponsive) return;
  std::visit(
      [&](const auto& message) {
        if constexpr (requires { on(now, from, message); }) on(now, from, message);
      },
      body);
  if (!std::holds_alternative<AliveMessage>(body)) drive_memberships(now);
}

void ControlLogic::connection_ended(Time now, int peer, const std::string& why) {
  liveness_.forget(peer);
  if (gone(peer)) return;
  if (given_up_by_.count(peer) != 0) {  // it has ended it, and lives
    left_.insert(peer);
    return drive_memberships(now);
  }
  peer_lost(now, peer, {why, ErrorCode::kPeerLost});
  cut_off(now, peer, LostMessage::Fate::kDied, why);
  drive_memberships(now);
}

void ControlLogic::tick(Time now) {
  look_for_silence(now);
  look_for_unreachable(now);
  drive_memberships(now);
  for (auto& [id, group] : groups_) {
    if (group.failure) continue;
    if (group.stall && group.stall->blame_due >= 0 && group.stall->blame_due <= now) say_blame(now, id, group);
    if (group.wait && group.wait->due <= now) say_wait(now, group);
    if (!group.losses.empty() && group.losses_due <= now) {
      fail(id, group, loss_error(group.losses, &group, "died or was cut off"), Audience::kMembers, -1);
      continue;
    }
    const auto missing = std::find_if(group.streams_due.begin(), group.streams_due.end(),
                                      [now](const auto& stream) { return stream.second <= now; });
    if (missing != group.streams_due.end()) {
      fail(id, group,
           {ErrorCode::kNetwork,
            fmt::format("{} left after it had sent messages to {}, and their connection has not come within {}",
                        name_in(group, missing->first), name_in(group, settings_.rank), time_text(settings_.stream_ms)),
            {missing->first}},
           Audience::kMembers, -1);
      continue;
    }
    for (const Suspicion& suspicion : group.suspicions) {
      if (suspicion.due > now) continue;
      const ErrorCode code = suspicion.error.code;
      const bool specific = code == ErrorCode::kProtocol || code == ErrorCode::kMismatch ||
                            code == ErrorCode::kSystem || code == ErrorCode::kNetwork || code == ErrorCode::kCorrupt;
      const int culprit = code == ErrorCode::kSystem ? settings_.rank : suspicion.peer;  // its own system's refusal
      Error error{specific ? code : ErrorCode::kPeerLost,
                  fmt::format("the data connection between {} and {} failed: {}", name_in(group, settings_.rank),
                              name_in(group, suspicion.peer), suspicion.error.message),
                  {culprit}};
      fail(id, group, std::move(error), Audience::kMembers, -1);
      break;
    }
  }
}

void ControlLogic::on(Time now, int from, const AbortMessage& message) {
  if (message.communicator == 0) return resign(now, from, message.error);
  Group* group = find(message.communicator);
  if (group == nullptr) {
    Early* before = early(message.communicator);
    if (before != nullptr && !before->abort) before->abort = {from, message};
    return;
  }
  if (group->failure) return;
  Error error = message.error;
  // Deaths that this rank has seen and the sender had not: named as well.
  for (const auto& [peer, loss] : group->losses) {
    if (std::find(error.ranks.begin(), error.ranks.end(), peer) != error.ranks.end()) continue;
    name_too(*group, peer, loss, error);
  }
  group->stage = message.stage;
  fail(message.communicator, *group, std::move(error), Audience::kNeighbors, from);
}

void ControlLogic::on(Time now, int from, const ByeMessage& message) {
  Group* group = find(message.communicator);
  if (group == nullptr) {
    if (Early* before = early(message.communicator)) before->goodbyes.emplace(from, message);
    return;
  }
  const auto member = group->members.find(from);
  const bool again = member != group->members.end() && member->second.left && !gone(from) && is_neighbor(from);
  if (!again || !group->closing) return member_left(now, *group, from, message);
  for (auto& [peer, other] : group->members) other.left = true;  // as `from` has heard
  look_for_last(message.communicator, *group);
}

// Goodbyes that go from rank to rank are lost with a process on their way that has heard all and ends. Before, it says
// its own again to its neighbors, who do the same.
void ControlLogic::look_for_last(uint64_t communicator, Group& group) {
  if (!group.closing || group.heard_all || group.failure || all_are_neighbors() || !all_left(communicator)) return;
  group.heard_all = true;
  for (const int peer : settings_.neighbors) {
    if (group.members.count(peer) && !gone(peer)) actions_.push_back(Send{peer, ByeMessage{communicator, 0, false}});
  }
}

void ControlLogic::on(Time now, int from, const LeaveMessage&) {
  if (gone(from)) return;
  peer_left(now, from);
  tell_neighbors(from,
                 LostMessage{static_cast<uint32_t>(from), static_cast<uint32_t>(from), LostMessage::Fate::kLeft, ""});
}

void ControlLogic::on(Time now, int from, const LostMessage& message) {
  const int peer = static_cast<int>(message.rank), by = static_cast<int>(message.by);
  const int world = static_cast<int>(settings_.names.size());
  if (peer < 0 || peer >= world || by < 0 || by >= world) return;
  const bool died = message.fate == LostMessage::Fate::kDied;
  const Loss loss{message.why, died ? ErrorCode::kPeerLost : ErrorCode::kUnresponsive};
  if (peer != by) {
    if (peer == settings_.rank && by == from && !died) given_up(from, message.why);
    if (!note_cut(now, peer, by)) return;
    reported_[peer] = loss;
    return tell_neighbors(from, message);
  }
  // A rank that this one is connected to speaks for itself.
  if (peer == settings_.rank || is_neighbor(peer) || gone(peer)) return;
  if (message.fate == LostMessage::Fate::kLeft) {
    peer_left(now, peer);
  } else {
    peer_lost(now, peer, loss);
  }
  tell_neighbors(from, message);
}

// The other rank's log has it.
void ControlLogic::on(Time, int, const BlameMessage& message) {
  Group* group = find(message.communicator);
  if (group != nullptr && group->stall) group->stall->heard = message.text;
}

// --- parts

ControlLogic::Group* ControlLogic::find(uint64_t communicator) {
  const auto found = groups_.find(communicator);
  return found == groups_.end() ? nullptr : &found->second;
}

const ControlLogic::Group* ControlLogic::find(uint64_t communicator) const {
  const auto found = groups_.find(communicator);
  return found == groups_.end() ? nullptr : &found->second;
}

ControlLogic::Early* ControlLogic::early(uint64_t communicator) {
  if (closed_.count(communicator)) return nullptr;
  const auto found = early_.find(communicator);
  if (found != early_.end()) return &found->second;
  early_order_.push_back(communicator);
  while (early_order_.size() > kMaxEarly) {
    early_.erase(early_order_.front());
    early_order_.pop_front();
  }
  return &early_[communicator];
}

bool ControlLogic::may_join(uint64_t communicator, int peer) const {
  const Group* group = find(communicator);
  return group == nullptr || group->members.count(peer) != 0;
}

bool ControlLogic::failed(uint64_t communicator) const {
  const Group* group = find(communicator);
  return group != nullptr && group->failure.has_value();
}

bool ControlLogic::gone(int peer) const {
  return lost_.count(peer) != 0 || left_.count(peer) != 0 || resigned_.count(peer) != 0;
}

// -1: it is no member.
int ControlLogic::place_in(const Group& group, int peer) {
  const auto found = std::find(group.order.begin(), group.order.end(), peer);
  return found == group.order.end() ? -1 : static_cast<int>(found - group.order.begin());
}

std::string ControlLogic::communicator_name(const Group& group) {
  constexpr size_t kMostNamed = 8;
  const auto named = std::span(group.order).first(std::min(group.order.size(), kMostNamed));
  return fmt::format("communicator {:#x} (world ranks {}{})", group.id, fmt::join(named, ", "),
                     named.size() < group.order.size() ? ", ..." : "");
}

std::string ControlLogic::name_in(const Group& group, int peer) const {
  const int place = place_in(group, peer);
  if (place < 0 || place == peer) return name(peer);
  return fmt::format("rank {} (world rank {}, {})", place, peer, settings_.names[static_cast<size_t>(peer)]);
}

void ControlLogic::peer_lost(Time now, int peer, const Loss& loss) {
  liveness_.forget(peer);
  lost_.emplace(peer, loss);
  map_.forget(peer);
  actions_.push_back(Gone{peer, true});
  for (auto& [id, group] : groups_) lose(now, id, group, peer, loss);
}

void ControlLogic::peer_left(Time now, int peer) {
  liveness_.forget(peer);
  left_.insert(peer);
  map_.forget(peer);
  actions_.push_back(Gone{peer, false});
  for (auto& [id, group] : groups_) member_left(now, group, peer, {id});
}

// The way between this rank and a neighbor is no more.
void ControlLogic::cut_off(Time now, int peer, LostMessage::Fate fate, const std::string& why) {
  if (!note_cut(now, settings_.rank, peer)) return;
  tell_neighbors(peer, LostMessage{static_cast<uint32_t>(peer), static_cast<uint32_t>(settings_.rank), fate, why});
}

// False: it was known, or all are connected to this rank, and speak for themselves.
bool ControlLogic::note_cut(Time now, int one, int other) {
  if (all_are_neighbors() || !map_.cut(one, other)) return false;
  if (look_due_ < 0) look_due_ = now + settings_.look_ms;
  actions_.push_back(Cut{one, other});
  return true;
}

// A rank may be cut off from some of its neighbors and live: it is lost to this one once no way leads to it.
void ControlLogic::look_for_unreachable(Time now) {
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
    peer_lost(now, peer,
              reported != reported_.end() ? reported->second
                                          : Loss{"all that were connected to it are lost", ErrorCode::kPeerLost});
  }
}

// The start of `from` failed after this rank's own was done: those that it calls dead are lost, and not the messenger.
void ControlLogic::resign(Time now, int from, const Error& error) {
  if (gone(from)) return;
  const Error own = heard_start_error(settings_.rank, from, name(from), error);
  const std::string why = fmt::format("{} gave up its start: {}", name(from), error.message);
  if (own.code != ErrorCode::kPeerLost) {
    resigned_.emplace(from, why);
    return fail_start(own);
  }
  for (const int culprit : own.ranks) {
    if (gone(culprit) || culprit < 0 || culprit >= static_cast<int>(settings_.names.size())) continue;
    peer_lost(now, culprit, {why, ErrorCode::kPeerLost});
    const auto rank = static_cast<uint32_t>(culprit);
    tell_neighbors(from, LostMessage{rank, rank, LostMessage::Fate::kDied, why});
  }
  if (gone(from)) return;  // it blames itself
  resigned_.emplace(from, why);
  for (auto& [id, group] : groups_) excuse(now, id, group, from);
}

// The group has lost a member either way: the culprit if it is one, else the rank that gave up.
void ControlLogic::excuse(Time now, uint64_t communicator, Group& group, int peer) {
  const auto found = group.members.find(peer);
  if (found == group.members.end() || found->second.left || found->second.lost) return;
  if (group.losses.empty()) return lose(now, communicator, group, peer, {resigned_.at(peer), ErrorCode::kPeerLost});
  found->second.lost = true;
  std::erase_if(group.suspicions, [&](const Suspicion& suspicion) { return suspicion.peer == peer; });
}

void ControlLogic::unreached(int peer, int by, const std::string& why) {
  if ((peer != settings_.rank && !is_neighbor(peer)) || gone(peer) || gone(by)) return;
  fail_start(parted_error({peer, by, settings_.rank, name(peer), name(by), why}));
  actions_.push_back(Send{by, AbortMessage{0, Stage::kMaking, *start_failure_}});
}

// Nobody died, but the communicator of all ranks cannot come about.
void ControlLogic::fail_start(const Error& error) {
  if (!start_failure_) start_failure_ = error;
  for (auto& [id, group] : groups_) {
    if (group.stage == Stage::kMaking) fail(id, group, error, Audience::kMembers, -1);
  }
}

std::optional<Error> ControlLogic::start_failure() const {
  if (lost_.empty()) return start_failure_;
  return loss_error(lost_, nullptr, "died while the group was starting");
}

void ControlLogic::lose(Time now, uint64_t communicator, Group& group, int peer, const Loss& loss) {
  const auto found = group.members.find(peer);
  if (found == group.members.end() || found->second.lost) return;
  if (found->second.left && group.streams_due.erase(peer) == 0) return;
  found->second.lost = true;
  if (group.closing) return look_for_last(communicator, group);
  if (group.failure) {
    lose_too(communicator, group, peer, loss);
    return;
  }
  if (group.losses.empty()) group.losses_due = now + settings_.collect_ms;
  group.losses.emplace(peer, loss);
}

// A death after the failure was delivered. Deaths at once are seen apart where a process takes long to end (much
// memory, busy cores), so the loss goes on to name them; what failed otherwise keeps its reason.
void ControlLogic::lose_too(uint64_t communicator, Group& group, int peer, const Loss& loss) {
  Error& error = *group.failure;
  const bool named = std::find(error.ranks.begin(), error.ranks.end(), peer) != error.ranks.end();
  if (named && loss.code == error.code) return;
  if (named || error.code != loss.code) {
    actions_.push_back(Note{too_text(group, peer, loss)});
    return;
  }
  name_too(group, peer, loss, error);
  actions_.push_back(Fail{communicator, error, group.stage});
}

std::string ControlLogic::too_text(const Group& group, int peer, const Loss& loss) const {
  return loss.code == ErrorCode::kPeerLost ? fmt::format("{} died too: {}", name_in(group, peer), loss.why)
                                           : fmt::format("{} {}", name_in(group, peer), loss.why);
}

void ControlLogic::name_too(const Group& group, int peer, const Loss& loss, Error& error) const {
  error.ranks.push_back(peer);
  error.message += "; " + too_text(group, peer, loss);
}

// What it has sent may come by another way, and later: a stream that has come is read to its end.
void ControlLogic::member_left(Time now, Group& group, int peer, const ByeMessage& goodbye) {
  const auto found = group.members.find(peer);
  if (found == group.members.end() || found->second.left || found->second.lost) return;
  found->second.left = true;
  group.told.reset();
  found->second.last_sequence = goodbye.last_sequence;
  std::erase_if(group.suspicions, [&](const Suspicion& suspicion) { return suspicion.peer == peer; });
  if (goodbye.streams && !group.streamed.count(peer) && !group.failure && !group.closing) {
    group.streams_due[peer] = now + settings_.stream_ms;
  } else {
    actions_.push_back(PeerLeft{goodbye.communicator, peer, goodbye.last_sequence});
  }
  look_for_last(goodbye.communicator, group);
}

// Only needed where not every pair is connected.
void ControlLogic::tell_neighbors(int except, const LostMessage& message) {
  if (all_are_neighbors()) return;
  for (int peer : settings_.neighbors) {
    if (peer != except && !gone(peer)) actions_.push_back(Send{peer, message});
  }
}

Error ControlLogic::loss_error(const std::map<int, Loss>& losses, const Group* group, const char* died) const {
  Error error{ErrorCode::kUnresponsive, "", {}};
  for (const auto& [peer, loss] : losses) {
    const std::string who = group != nullptr ? name_in(*group, peer) : name(peer);
    if (!error.message.empty()) error.message += "; ";
    if (loss.code == ErrorCode::kPeerLost) {
      error.code = ErrorCode::kPeerLost;
      error.message += fmt::format("{} {} ({})", who, died, loss.why);
    } else {
      error.message += fmt::format("{} {}", who, loss.why);
    }
    error.ranks.push_back(peer);
  }
  return error;
}

void ControlLogic::fail(uint64_t communicator, Group& group, Error error, Audience audience, int except) {
  if (group.failure) return;
  group.failure = error;
  group.losses.clear();
  group.suspicions.clear();
  group.streams_due.clear();
  group.stall.reset();
  group.wait.reset();
  for (const auto& [peer, member] : group.members) {
    if (peer == except || member.left || gone(peer)) continue;
    if (audience == Audience::kMembers || is_neighbor(peer)) {
      actions_.push_back(Send{peer, AbortMessage{communicator, group.stage, error}});
    }
  }
  actions_.push_back(Fail{communicator, std::move(error), group.stage});
}

}  // namespace rondo
