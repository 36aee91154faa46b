#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "transport/control/control_logic.h"

// ControlLogic: the questions of a rank whose call stalls, and what the answers say about the calls of the others.

namespace rondo {
namespace {

// Looks by which a peer's answer must be ahead of the one before: the first may have begun before that one.
constexpr uint64_t kLooks = 2;

// CallState::route in words.
std::string route_text(uint64_t route) {
  return fmt::format("{}, table {:08x}", algorithm_name(static_cast<Algorithm>(route >> 32)), route & 0xffffffff);
}

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

void ControlLogic::stalled(Time now, uint64_t communicator, uint64_t sequence, const CallState& own, Ask ask) {
  Group* group = find(communicator);
  if (group == nullptr || group->failure || group->closing) return;
  if (sequence == kMessagesSequence) {
    for (auto& [peer, member] : group->members) member.messages.reset();
    group->wait = Wait{own, now + settings_.answer_ms};
    group->waited = own;
  } else {
    stalled_in_call(now, *group, sequence, own);
  }
  ask_members(now, communicator, *group, sequence, ask);
}

void ControlLogic::stalled_in_call(Time now, Group& group, uint64_t sequence, const CallState& own) {
  if (!group.stall || group.stall->sequence != sequence) {
    for (auto& [peer, member] : group.members) member.p2p_since = member.unanswered_since = -1;
    group.stall = Stall{sequence, own, settings_.blame_after_ms};
  }
  Stall& stall = *group.stall;
  stall.own = own;
  if (settings_.blame_after_ms > 0 && own.since_ms >= static_cast<uint64_t>(stall.blame_after_ms)) {
    stall.blame_due = now + settings_.answer_ms;
    while (static_cast<uint64_t>(stall.blame_after_ms) <= own.since_ms) stall.blame_after_ms *= 2;
  }
}

// Each rank begins behind itself, so that all members are asked equally often.
void ControlLogic::ask_members(Time now, uint64_t communicator, Group& group, uint64_t sequence, Ask ask) {
  const size_t world = group.order.size();
  const int own_place = place_in(group, settings_.rank);
  const size_t most = ask == Ask::kAll ? world : asked_at_once(world);
  for (size_t asked = 0; asked < most; ++asked) {
    const int peer = group.order[(static_cast<size_t>(own_place) + 1 + group.questions++) % world];
    if (peer == settings_.rank) continue;
    Member& member = group.members[peer];
    if (sequence != kMessagesSequence) member.asked = sequence;
    if (member.left || member.lost) continue;
    if (member.unanswered_since < 0) member.unanswered_since = now;
    actions_.push_back(Send{peer, QueryMessage{communicator, sequence}});
  }
}

// Where the communicator has failed here, its abort may have died with a rank on its way: the one that still waits is
// told again.
void ControlLogic::query(int from, const QueryMessage& question, const CallState& own) {
  const Group* group = find(question.communicator);
  const auto closed = closed_.find(question.communicator);
  std::optional<Error> failure;
  Stage stage = Stage::kMaking;
  if (group != nullptr) failure = group->failure, stage = group->stage;
  if (group == nullptr && closed != closed_.end()) failure = closed->second.failure, stage = closed->second.stage;
  if (failure) {
    actions_.push_back(Send{from, AbortMessage{question.communicator, stage, *failure}});
    return;
  }
  actions_.push_back(Send{from, AnswerMessage{question.communicator, question.sequence, own}});
}

std::vector<uint64_t> ControlLogic::beside(uint64_t communicator) const {
  std::vector<uint64_t> ids;
  for (const auto& [id, group] : groups_) {
    if (id != communicator) ids.push_back(id);
  }
  return ids;
}

bool ControlLogic::is_made(uint64_t communicator) const {
  const Group* group = find(communicator);
  return group != nullptr && group->stage == Stage::kUse;
}

std::string ControlLogic::elsewhere(uint64_t communicator, const std::string& waits_in) const {
  const Group* group = find(communicator);
  return group == nullptr || waits_in.empty() ? "" : fmt::format("{} of {}", waits_in, communicator_name(*group));
}

void ControlLogic::on(Time now, int from, const AnswerMessage& message) {
  Group* group = find(message.communicator);
  if (group == nullptr || group->failure || group->closing) return;
  const auto found = group->members.find(from);
  if (found == group->members.end()) return;
  found->second.unanswered_since = -1;
  if (message.sequence == kMessagesSequence) {
    found->second.messages = message.state;
    return;
  }
  found->second.answer = message;
  if (group->stall && group->stall->sequence == message.sequence) compare(now, message.communicator, *group, from);
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

}  // namespace rondo
