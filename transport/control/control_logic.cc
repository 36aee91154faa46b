#include "transport/control/control_logic.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "ring/base/check.h"
#include "transport/control/blame.h"
#include "transport/control/start_logic.h"

namespace rondo {
namespace {

// The first may have begun before the answer with which it is compared.
constexpr uint64_t kLooks = 2;

// Of CallState::route.
std::string route_text(uint64_t route) {
  return fmt::format("{}, table {:08x}", algorithm_name(static_cast<Algorithm>(route >> 32)), route & 0xffffffff);
}

// Communicators that others have opened and this rank has not, or has closed already: more than a program opens at
// once, and less than a megabyte.
constexpr size_t kMaxEarly = 1024;
constexpr size_t kMaxClosed = 4096;

// Members whom a rank asks at a time. In a large communicator a part of them, in turn: where 256 ranks of a host wait
// for late ones, 65,280 questions every 200 ms, each passed on four times, would take all of its cores.
size_t asked_at_once(size_t world) {
  constexpr size_t kAllAsked = 64, kQuestions = 2048;  // up to that world; of all ranks together beyond
  return world <= kAllAsked ? world : std::max<size_t>(1, kQuestions / world);
}

// The entries of the list in brackets at the end of a call's text; empty if there is none.
std::vector<std::string_view> entries(std::string_view text) {
  std::vector<std::string_view> found;
  const size_t open = text.rfind('['), close = text.rfind(']');
  if (open == text.npos || close == text.npos || close < open) return found;
  text = text.substr(open + 1, close - open - 1);
  while (true) {
    const size_t comma = text.find(", ");
    found.push_back(text.substr(0, comma));
    if (comma == text.npos) return found;
    text.remove_prefix(comma + 2);
  }
}

// Lists of tensors are long, and one entry is what the reader looks for. "" unless both texts have a list.
std::string first_difference(std::string_view one, std::string_view other) {
  const auto ours = entries(one), theirs = entries(other);
  if (ours.empty() || theirs.empty()) return "";
  const size_t common = std::min(ours.size(), theirs.size());
  size_t i = 0;
  while (i < common && ours[i] == theirs[i]) ++i;
  if (i == ours.size() && i == theirs.size()) return "";
  const auto entry = [i](const auto& list) { return i < list.size() ? list[i] : std::string_view("none"); };
  return fmt::format("; the first tensor that differs is number {} (from 0): {} against {}", i, entry(ours),
                     entry(theirs));
}

}  // namespace

ControlLogic::ControlLogic(Settings settings) : settings_(std::move(settings)), liveness_(settings_.liveness) {}

std::vector<ControlLogic::Action> ControlLogic::take_actions() { return std::exchange(actions_, {}); }

std::optional<ControlLogic::Time> ControlLogic::next_time() const {
  std::optional<Time> next;
  const auto consider = [&](Time time) { next = next ? std::min(*next, time) : time; };
  for (const auto& [id, group] : groups_) {
    if (!group.losses.empty()) consider(group.losses_due);
    for (const Suspicion& suspicion : group.suspicions) consider(suspicion.due);
    if (group.stall && group.stall->blame_due >= 0) consider(group.stall->blame_due);
    for (const auto& [peer, due] : group.streams_due) consider(due);
  }
  if (const auto silence = liveness_.next_time()) consider(*silence);
  return next;
}

// --- this rank

void ControlLogic::open(Time now, uint64_t communicator, std::vector<int> members) {
  RONDO_CHECK(!is_open(communicator), "a communicator is opened once");
  Group& group = groups_[communicator];
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
  if (!given_up_.empty()) fail_given_up(communicator, group);
  for (const auto& [peer, loss] : lost_) {
    if (!before.goodbyes.count(peer)) lose(now, communicator, group, peer, loss);
  }
  for (const auto& [peer, resigned] : resigned_) excuse(now, communicator, group, peer, resigned);
  if (before.abort) on(now, before.abort->first, before.abort->second);
  group.streamed = std::move(before.streamed);
  for (const auto& [peer, goodbye] : before.goodbyes) member_left(now, group, peer, goodbye);
  for (const int peer : left_) member_left(now, group, peer, {communicator});
}

void ControlLogic::close(uint64_t communicator, uint64_t last_sequence, const std::set<int>& streams) {
  Group* group = find(communicator);
  if (group == nullptr || group->closing) return;
  group->closing = true;
  group->losses.clear();
  group->suspicions.clear();
  group->streams_due.clear();
  for (const auto& [peer, member] : group->members) {
    const bool streamed = streams.count(peer) != 0;
    if (!gone(peer)) actions_.push_back(Send{peer, ByeMessage{communicator, last_sequence, streamed}});
  }
}

bool ControlLogic::all_left(uint64_t communicator) const {
  const Group* group = find(communicator);
  // After a failure no rank needs a goodbye: the failure was sent before.
  if (group == nullptr || group->failure) return true;
  return std::all_of(group->members.begin(), group->members.end(),
                     [](const auto& entry) { return entry.second.left || entry.second.lost; });
}

void ControlLogic::forget(uint64_t communicator) {
  const auto group = groups_.find(communicator);
  if (group == groups_.end()) return;
  closed_[communicator] = std::move(group->second.failure);
  groups_.erase(group);
  closed_order_.push_back(communicator);
  if (closed_order_.size() <= kMaxClosed) return;
  closed_.erase(closed_order_.front());
  closed_order_.pop_front();
}

void ControlLogic::stalled(Time now, uint64_t communicator, uint64_t sequence, const CallState& own, Ask ask) {
  Group* group = find(communicator);
  if (group == nullptr || group->failure || group->closing) return;
  if (!group->stall || group->stall->sequence != sequence) {
    for (auto& [peer, member] : group->members) member.p2p_since = member.unanswered_since = -1;
    group->stall = Stall{sequence, own, settings_.blame_after_ms};
  }
  Stall& stall = *group->stall;
  stall.own = own;
  if (settings_.blame_after_ms > 0 && own.since_ms >= static_cast<uint64_t>(stall.blame_after_ms)) {
    stall.blame_due = now + settings_.answer_ms;
    while (static_cast<uint64_t>(stall.blame_after_ms) <= own.since_ms) stall.blame_after_ms *= 2;
  }
  // Each rank begins behind itself, so that all members are asked equally often.
  const size_t world = group->order.size();
  const auto own_place = std::find(group->order.begin(), group->order.end(), settings_.rank) - group->order.begin();
  const size_t most = ask == Ask::kAll ? world : asked_at_once(world);
  for (size_t asked = 0; asked < most; ++asked) {
    const int peer = group->order[(static_cast<size_t>(own_place) + 1 + group->questions++) % world];
    if (peer == settings_.rank) continue;
    Member& member = group->members[peer];
    member.asked = sequence;
    if (member.left || member.lost) continue;
    if (member.unanswered_since < 0) member.unanswered_since = now;
    actions_.push_back(Send{peer, QueryMessage{communicator, sequence}});
  }
}

void ControlLogic::link_failed(Time now, uint64_t communicator, int peer, const Error& error) {
  Group* group = find(communicator);
  if (group == nullptr || group->failure || group->closing) return;
  const auto found = group->members.find(peer);
  if (found == group->members.end() || found->second.left || found->second.lost) return;
  for (const Suspicion& suspicion : group->suspicions) {
    if (suspicion.peer == peer) return;
  }
  // Damage has no better reason; and the other end, whose link closes of it, must not be faster with a worse one.
  const Time grace_ms = error.code == ErrorCode::kCorrupt ? 0 : settings_.link_grace_ms;
  group->suspicions.push_back({peer, error, now + grace_ms});
}

void ControlLogic::abort(Time, uint64_t communicator, const Error& error) {
  Group* group = find(communicator);
  if (group != nullptr) fail(communicator, *group, error, Audience::kMembers, -1);
}

void ControlLogic::decline(Time, uint64_t communicator, const std::vector<int>& members, const Error& error) {
  for (const int peer : members) {
    if (peer != settings_.rank && !gone(peer)) actions_.push_back(Send{peer, AbortMessage{communicator, 0, error}});
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
}

// Where the communicator has failed here, its abort may have died with a rank on its way: the one that still waits is
// told again.
void ControlLogic::query(int from, const QueryMessage& question, const CallState& own) {
  const Group* group = find(question.communicator);
  const auto closed = closed_.find(question.communicator);
  std::optional<Error> failure;
  if (group != nullptr) failure = group->failure;
  if (group == nullptr && closed != closed_.end()) failure = closed->second;
  if (failure) {
    actions_.push_back(Send{from, AbortMessage{question.communicator, 0, *failure}});
    return;
  }
  actions_.push_back(Send{from, AnswerMessage{question.communicator, question.sequence, own}});
}

void ControlLogic::connection_ended(Time now, int peer, const std::string& why) {
  liveness_.forget(peer);
  if (gone(peer)) return;
  if (!given_up_.empty()) {  // they end it, and live
    left_.insert(peer);
    return;
  }
  peer_lost(now, peer, {why, ErrorCode::kPeerLost});
  tell_neighbors(peer, LostMessage{static_cast<uint32_t>(peer), LostMessage::Fate::kDied, why});
}

void ControlLogic::tick(Time now) {
  look_for_silence(now);
  for (auto& [id, group] : groups_) {
    if (group.failure) continue;
    if (group.stall && group.stall->blame_due >= 0 && group.stall->blame_due <= now) say_blame(now, id, group);
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
      Error error{specific ? code : ErrorCode::kPeerLost,
                  fmt::format("the data connection between {} and {} failed: {}", name_in(group, settings_.rank),
                              name_in(group, suspicion.peer), suspicion.error.message),
                  {suspicion.peer}};
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
  fail(message.communicator, *group, std::move(error), Audience::kNeighbors, from);
}

void ControlLogic::on(Time now, int from, const AnswerMessage& message) {
  Group* group = find(message.communicator);
  if (group == nullptr || group->failure || group->closing) return;
  const auto found = group->members.find(from);
  if (found == group->members.end()) return;
  found->second.answer = message;
  found->second.unanswered_since = -1;
  if (group->stall && group->stall->sequence == message.sequence) compare(now, message.communicator, *group, from);
}

void ControlLogic::on(Time now, int from, const ByeMessage& message) {
  Group* group = find(message.communicator);
  if (group == nullptr) {
    if (Early* before = early(message.communicator)) before->goodbyes.emplace(from, message);
    return;
  }
  member_left(now, *group, from, message);
}

void ControlLogic::on(Time now, int from, const LeaveMessage&) {
  if (gone(from)) return;
  peer_left(now, from);
  tell_neighbors(from, LostMessage{static_cast<uint32_t>(from), LostMessage::Fate::kLeft, ""});
}

void ControlLogic::on(Time now, int from, const LostMessage& message) {
  const int peer = static_cast<int>(message.rank);
  if (peer == settings_.rank && message.fate == LostMessage::Fate::kUnresponsive) return given_up(message.why);
  // A rank that this one is connected to speaks for itself: its connection may be sound while the sender's is cut.
  const bool direct = std::binary_search(settings_.neighbors.begin(), settings_.neighbors.end(), peer);
  if (peer == settings_.rank || direct || peer < 0 || peer >= static_cast<int>(settings_.names.size())) return;
  if (gone(peer)) return;
  if (message.fate == LostMessage::Fate::kLeft) {
    peer_left(now, peer);
  } else {
    const bool died = message.fate == LostMessage::Fate::kDied;
    peer_lost(now, peer, {message.why, died ? ErrorCode::kPeerLost : ErrorCode::kUnresponsive});
  }
  tell_neighbors(from, message);
}

void ControlLogic::on(Time, int, const BlameMessage& message) {
  const Group* group = find(message.communicator);
  if (group != nullptr && !group->failure && !group->closing) actions_.push_back(Note{message.text});
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

std::string ControlLogic::name(int peer) const {
  if (peer < 0 || peer >= static_cast<int>(settings_.names.size())) return fmt::format("rank {}", peer);
  return fmt::format("rank {} ({})", peer, settings_.names[static_cast<size_t>(peer)]);
}

std::string ControlLogic::name_in(const Group& group, int peer) const {
  const auto found = std::find(group.order.begin(), group.order.end(), peer);
  const auto place = found - group.order.begin();
  if (found == group.order.end() || place == peer) return name(peer);
  return fmt::format("rank {} (world rank {}, {})", place, peer, settings_.names[static_cast<size_t>(peer)]);
}

std::vector<int> ControlLogic::absent(uint64_t communicator, uint64_t sequence) const {
  std::vector<int> result;
  const Group* group = find(communicator);
  if (group == nullptr) return result;
  for (const auto& [peer, member] : group->members) {
    if (group->questions > 0 && member.asked != sequence && !member.left && !member.lost) continue;
    const uint64_t answered = member.answer ? member.answer->state.current : 0;
    if (std::max(answered, member.last_sequence) < sequence) result.push_back(peer);
  }
  return result;
}

void ControlLogic::peer_lost(Time now, int peer, const Loss& loss) {
  liveness_.forget(peer);
  lost_.emplace(peer, loss);
  for (auto& [id, group] : groups_) lose(now, id, group, peer, loss);
}

void ControlLogic::peer_left(Time now, int peer) {
  liveness_.forget(peer);
  left_.insert(peer);
  for (auto& [id, group] : groups_) member_left(now, group, peer, {id});
}

// The start of `from` failed after this rank's own was done: those that it blames are lost, not the messenger.
void ControlLogic::resign(Time now, int from, const Error& error) {
  if (gone(from)) return;
  const std::string why = fmt::format("{} gave up its start: {}", name(from), error.message);
  const std::vector<int> culprits = start_culprits(settings_.rank, from, error);
  for (const int culprit : culprits) {
    if (gone(culprit) || culprit < 0 || culprit >= static_cast<int>(settings_.names.size())) continue;
    peer_lost(now, culprit, {why, ErrorCode::kPeerLost});
    tell_neighbors(from, LostMessage{static_cast<uint32_t>(culprit), LostMessage::Fate::kDied, why});
  }
  if (gone(from)) return;  // it blames itself
  const auto& resigned = resigned_.emplace(from, Resigned{culprits, why}).first->second;
  for (auto& [id, group] : groups_) excuse(now, id, group, from, resigned);
}

// The group has lost a member either way: the culprit if it is one, else the rank that gave up.
void ControlLogic::excuse(Time now, uint64_t communicator, Group& group, int peer, const Resigned& resigned) {
  const auto found = group.members.find(peer);
  if (found == group.members.end() || found->second.left || found->second.lost) return;
  const bool known = std::any_of(resigned.culprits.begin(), resigned.culprits.end(),
                                 [&](int culprit) { return group.members.count(culprit) != 0; });
  if (!known) return lose(now, communicator, group, peer, {resigned.why, ErrorCode::kPeerLost});
  found->second.lost = true;
  std::erase_if(group.suspicions, [&](const Suspicion& suspicion) { return suspicion.peer == peer; });
}

std::optional<Error> ControlLogic::death() const {
  if (lost_.empty()) return std::nullopt;
  return loss_error(lost_, nullptr, "died while the group was starting");
}

void ControlLogic::lose(Time now, uint64_t communicator, Group& group, int peer, const Loss& loss) {
  const auto found = group.members.find(peer);
  if (found == group.members.end() || found->second.lost) return;
  if (found->second.left && group.streams_due.erase(peer) == 0) return;
  found->second.lost = true;
  if (group.closing) return;
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
  actions_.push_back(Fail{communicator, error});
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
  found->second.last_sequence = goodbye.last_sequence;
  std::erase_if(group.suspicions, [&](const Suspicion& suspicion) { return suspicion.peer == peer; });
  if (goodbye.streams && !group.streamed.count(peer) && !group.failure && !group.closing) {
    group.streams_due[peer] = now + settings_.stream_ms;
  } else {
    actions_.push_back(PeerLeft{goodbye.communicator, peer, goodbye.last_sequence});
  }
}

// Only needed where not every pair is connected.
void ControlLogic::tell_neighbors(int except, const LostMessage& message) {
  if (settings_.neighbors.size() + 1 == settings_.names.size()) return;
  for (int peer : settings_.neighbors) {
    if (peer != except && !gone(peer)) actions_.push_back(Send{peer, message});
  }
}

void ControlLogic::compare(Time now, uint64_t communicator, Group& group, int peer) {
  Member& member = group.members.at(peer);
  const CallState& own = group.stall->own;
  const CallState& theirs = member.answer->state;
  if (own.fingerprint != 0 && theirs.fingerprint != 0 && own.fingerprint != theirs.fingerprint) {
    mismatch(communicator, group, peer, "called " + theirs.text);
    return;
  }
  if (own.route != 0 && theirs.route != 0 && own.route != theirs.route) {
    mismatch(communicator, group, peer,
             fmt::format("called {} and takes another route for it ({}; here {}): this is a fault of Rondo",
                         theirs.text, route_text(theirs.route), route_text(own.route)));
    return;
  }
  if (!stuck_in_p2p(group, peer)) {
    member.p2p_since = -1;
  } else if (member.p2p_since < 0 || member.p2p_text != theirs.p2p_text || member.p2p_moved != theirs.p2p_moved) {
    member.p2p_since = now;
    member.p2p_text = theirs.p2p_text;
    member.p2p_moved = theirs.p2p_moved;
    member.p2p_looks = theirs.p2p_looks;
  } else if (now - member.p2p_since >= settings_.p2p_confirm_ms && theirs.p2p_looks >= member.p2p_looks + kLooks) {
    mismatch(communicator, group, peer, "waits in " + theirs.p2p_text);
  }
}

// `peer` sleeps in a send or recv that only ranks inside this collective could end, and no rank has a second thread
// that might do it: it will never make the call that we wait for.
bool ControlLogic::stuck_in_p2p(const Group& group, int peer) const {
  const auto waits_for_us = [&](int partner) {
    if (partner == settings_.rank) return true;
    const auto found = group.members.find(partner);
    if (found == group.members.end() || !found->second.answer) return false;
    const AnswerMessage& answer = *found->second.answer;
    return answer.sequence == group.stall->sequence && answer.state.fingerprint != 0 && !answer.state.finished &&
           !answer.state.threads;
  };
  const CallState& theirs = group.members.at(peer).answer->state;
  if (!theirs.in_p2p || theirs.threads || group.stall->own.threads) return false;
  if (theirs.current >= group.stall->sequence) return false;
  if (theirs.p2p_peer >= 0) return waits_for_us(theirs.p2p_peer);
  return std::all_of(group.members.begin(), group.members.end(),
                     [&](const auto& entry) { return entry.first == peer || waits_for_us(entry.first); });
}

void ControlLogic::mismatch(uint64_t communicator, Group& group, int peer, const std::string& theirs) {
  std::string mine = fmt::format("{} called {}", name_in(group, settings_.rank), group.stall->own.text);
  std::string other = fmt::format("{} {}", name_in(group, peer), theirs);
  std::vector<int> ranks{settings_.rank, peer};
  // In the order of ranks: both ranks make the same text.
  if (peer < settings_.rank) {
    std::swap(mine, other);
    std::swap(ranks[0], ranks[1]);
  }
  Error error{ErrorCode::kMismatch,
              fmt::format("ranks disagree about collective call {} of this communicator: {}, but {}{}",
                          group.stall->sequence - kMeetingSequence, mine, other, first_difference(mine, other)),
              std::move(ranks)};
  fail(communicator, group, std::move(error), Audience::kMembers, -1);
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
  for (const auto& [peer, member] : group.members) {
    if (peer == except || member.left || gone(peer)) continue;
    const bool direct = std::binary_search(settings_.neighbors.begin(), settings_.neighbors.end(), peer);
    if (audience == Audience::kMembers || direct) {
      actions_.push_back(Send{peer, AbortMessage{communicator, 0, error}});
    }
  }
  actions_.push_back(Fail{communicator, std::move(error)});
}

}  // namespace rondo
