#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "transport/control/control_logic.h"

// ControlLogic: ranks that say nothing, and whom a call waits for.

namespace rondo {
namespace {

// "; so do ranks 3, 5": all but the first.
std::string others(const std::vector<Liveness::Silent>& ranks, const char* lead) {
  std::vector<int> rest;
  for (size_t i = 1; i < ranks.size(); ++i) rest.push_back(ranks[i].peer);
  return rest.empty() ? "" : fmt::format("; {} ranks {}", lead, fmt::join(rest, ", "));
}

}  // namespace

// --- silence

void ControlLogic::look_for_silence(Time now) {
  const Liveness::Findings found = liveness_.tick(now);
  if (found.stopped_ms > 0) {
    actions_.push_back(Note{fmt::format("{} made no progress for {}: its process was stopped, or its core was taken",
                                        name(settings_.rank), time_text(found.stopped_ms))});
  }
  if (!found.back.empty()) {
    const auto& [peer, ms] = found.back.front();
    actions_.push_back(Note{fmt::format("{} answers again, after {} of silence{}", name(peer), time_text(ms),
                                        others(found.back, "so do"))});
  }
  if (!found.silent.empty()) {
    const auto& [peer, ms] = found.silent.front();
    actions_.push_back(Note{fmt::format("{} has not answered for {}: its process is stopped, or its host is cut off{}",
                                        name(peer), time_text(ms), others(found.silent, "nor have"))});
  }
  for (const auto& [peer, ms] : found.unresponsive) give_up(now, peer);
  if (!found.beat) return;
  Send alive{-1, AliveMessage{}};
  for (const int peer : settings_.neighbors) {
    alive.peer = peer;
    if (!gone(peer)) actions_.emplace_back(alive);
  }
}

// It is told as well: should it go on, it knows why nobody speaks to it any more.
void ControlLogic::give_up(Time now, int peer) {
  if (gone(peer)) return;
  const LostMessage message{
      static_cast<uint32_t>(peer), static_cast<uint32_t>(settings_.rank), LostMessage::Fate::kUnresponsive,
      fmt::format("has not answered for {} (RONDO_SUSPICION_MS): its process is stopped, or its host is cut off",
                  time_text(settings_.liveness.suspicion_ms))};
  actions_.push_back(Send{peer, message});
  actions_.push_back(Drop{peer});
  peer_lost(now, peer, {message.why, ErrorCode::kUnresponsive});
  cut_off(now, peer, message.fate, message.why);
}

void ControlLogic::given_up(int by, const std::string& why) {
  if (!given_up_by_.insert(by).second) return;
  if (given_up_.empty()) given_up_ = fmt::format("{} {}", name(settings_.rank), why);
  liveness_.forget(by);
  for (auto& [id, group] : groups_) fail_if_given_up(id, group);
}

// Where the way to one rank alone is cut, those that hear this rank go on with it: a communicator without that one is
// sound.
void ControlLogic::fail_if_given_up(uint64_t communicator, Group& group) {
  const bool sound = std::all_of(group.members.begin(), group.members.end(),
                                 [this](const auto& member) { return given_up_by_.count(member.first) == 0; });
  if (given_up_by_.empty() || sound) return;
  fail(communicator, group, {ErrorCode::kUnresponsive, given_up_, {settings_.rank}}, Audience::kMembers, -1);
}

// --- whom a call waits for

std::string ControlLogic::blame(Time now, uint64_t communicator, uint64_t sequence) const {
  const Group* group = find(communicator);
  if (group != nullptr && sequence == kMessagesSequence) {
    return group->waited && group->waited->in_p2p ? find_wait(now, *group, *group->waited).text : "";
  }
  if (group == nullptr || !group->stall || group->stall->sequence != sequence) return "";
  const std::string own = find_blame(now, *group).text();
  return own.empty() ? group->stall->heard : own;
}

void ControlLogic::say_blame(Time now, uint64_t communicator, Group& group) {
  Stall& stall = *group.stall;
  stall.blame_due = -1;
  if (!stall.heard.empty() || !speaks_for(now, group)) return;
  const Blame blame = find_blame(now, group);
  if (!is_cause(blame) || blame.same_cause(stall.said)) return;
  stall.said = blame;
  actions_.push_back(Note{blame.text()});
  for (const auto& [peer, member] : group.members) {
    if (!member.left && !gone(peer)) actions_.push_back(Send{peer, BlameMessage{communicator, blame.text()}});
  }
}

// A call may take long for its size alone.
bool ControlLogic::is_cause(const Blame& blame) const {
  if (blame.empty()) return false;
  return !blame.ranks.empty() ||
         blame.links[0].rate.bytes_per_second * 100 < blame.links[0].rate.best * settings_.slow_percent;
}

Waiting ControlLogic::waiting(Time now, uint64_t communicator, uint64_t sequence, const CallState& messages) const {
  const Group* group = find(communicator);
  if (group == nullptr || group->failure) return {};
  Waiting result;
  if (group->stall && group->stall->sequence == sequence) {
    const Blame blame = find_blame(now, *group);
    for (const Blame::Rank& rank : blame.ranks) result.ranks.push_back(rank.rank);
    if (is_cause(blame)) result.sentence = blame.text();
  } else if (messages.in_p2p) {
    if (messages.p2p_peer >= 0) result.ranks = {place_in(*group, messages.p2p_peer)};
    result.sentence = find_wait(now, *group, messages).text;
  }
  return result;
}

// Whether this is the lowest rank that waits in the call, so that one log has it. A lower one that this rank has not
// heard of yet may wait.
bool ControlLogic::speaks_for(Time now, const Group& group) const {
  return std::none_of(group.members.begin(), group.members.end(), [&](const auto& entry) {
    const auto& [peer, member] = entry;
    if (peer > settings_.rank || member.left || member.lost || blame_of(now, group, peer, 0)) return false;
    return !member.answer || member.answer->sequence != group.stall->sequence || !member.answer->state.finished;
  });
}

Blame ControlLogic::find_blame(Time now, const Group& group) const {
  const Stall& stall = *group.stall;
  Blame blame;
  blame.number = stall.sequence - std::min(stall.sequence, kMeetingSequence);
  blame.call = stall.own.text;
  uint64_t waited_ms = stall.own.since_ms;
  std::vector<std::pair<int, LinkRate>> links{{settings_.rank, stall.own.slowest}};
  for (const auto& [peer, member] : group.members) {
    if (!member.answer || member.answer->sequence != stall.sequence) continue;
    waited_ms = std::max(waited_ms, member.answer->state.since_ms);
    links.emplace_back(peer, member.answer->state.slowest);
  }
  blame.waited_ms = static_cast<int64_t>(waited_ms);
  for (const auto& [peer, member] : group.members) {
    if (auto rank = blame_of(now, group, peer, blame.waited_ms)) blame.ranks.push_back(std::move(*rank));
  }
  if (!blame.ranks.empty()) return blame;
  std::erase_if(links, [&](const auto& link) {
    return link.second.peer != settings_.rank && group.members.count(link.second.peer) == 0;
  });
  const auto slowest = std::min_element(links.begin(), links.end(), [](const auto& one, const auto& other) {
    return one.second.share() < other.second.share();
  });
  if (slowest == links.end()) return blame;
  blame.links.push_back({name_in(group, slowest->first), name_in(group, slowest->second.peer), slowest->second});
  return blame;
}

std::optional<Blame::Rank> ControlLogic::blame_of(Time now, const Group& group, int peer, int64_t waited_ms) const {
  const Member& member = group.members.at(peer);
  if (member.left || member.lost) return std::nullopt;
  if (const Time silent = silence_of(now, group, peer); silent > 0) {
    return Blame::Rank{name_in(group, peer), Blame::Why::kStopped, silent, place_in(group, peer)};
  }
  const uint64_t current = member.answer ? member.answer->state.current : 0;
  if (member.answer && current < group.stall->sequence) {
    const std::string& elsewhere = member.answer->state.text;
    return Blame::Rank{
        name_in(group, peer), Blame::Why::kLate, waited_ms, place_in(group, peer),
        elsewhere.empty() ? "" : fmt::format("{}, and this call is of {}", elsewhere, communicator_name(group))};
  }
  return std::nullopt;
}

// Milliseconds without an answer, longer than a rank that runs takes; else 0.
int64_t ControlLogic::silence_of(Time now, const Group& group, int peer) const {
  const Member& member = group.members.at(peer);
  const Time unanswered = member.unanswered_since < 0 ? 0 : now - member.unanswered_since;
  const Time silent = std::max(unanswered, unanswered > 0 ? liveness_.silence(now, peer) : 0);
  const Time patience = settings_.liveness.heartbeat_ms + settings_.answer_ms;
  return settings_.liveness.heartbeat_ms > 0 && silent > patience ? silent : 0;
}

// --- whom a message waits for

void ControlLogic::say_wait(Time now, Group& group) {
  const CallState own = std::exchange(group.wait, std::nullopt)->own;
  if (!own.in_p2p) return;
  const MessageWait wait = find_wait(now, group, own);
  if (wait.in_ring && *std::min_element(wait.chain.begin(), wait.chain.end()) < settings_.rank) return;  // it says so
  actions_.push_back(Note{wait.text});
}

ControlLogic::MessageWait ControlLogic::find_wait(Time now, const Group& group, const CallState& own) const {
  MessageWait wait{fmt::format("{} has waited {} in {}", name_in(group, settings_.rank),
                               time_text(static_cast<int64_t>(own.since_ms)), own.p2p_text),
                   {settings_.rank}};
  for (int next = own.p2p_peer; next >= 0;) {
    const auto seen = std::find(wait.chain.begin(), wait.chain.end(), next);
    if (seen != wait.chain.end()) {
      wait.text += seen + 1 == wait.chain.end() ? ": it waits for itself" : ": these ranks wait for each other";
      wait.in_ring = seen == wait.chain.begin();
      return wait;
    }
    const auto found = group.members.find(next);
    if (found == group.members.end()) break;
    const Member& member = found->second;
    wait.chain.push_back(next);
    if (const Time silent = silence_of(now, group, next); silent > 0) {
      wait.text += fmt::format("; {} made no progress for {}: its process was stopped, or its core was taken",
                               name_in(group, next), time_text(silent));
    } else if (member.messages) {
      wait.text += fmt::format("; {} waits in {}", name_in(group, next),
                               member.messages->in_p2p         ? member.messages->p2p_text
                               : member.messages->text.empty() ? "no message"
                                                               : member.messages->text);
    }
    next = member.messages && member.messages->in_p2p ? member.messages->p2p_peer : -1;
  }
  const auto waits = [](const auto& entry) {
    return entry.second.left || entry.second.lost || (entry.second.messages && entry.second.messages->in_p2p);
  };
  if (own.p2p_peer < 0 && std::all_of(group.members.begin(), group.members.end(), waits)) {
    wait.text += "; all other ranks wait in messages, too";
  }
  return wait;
}

}  // namespace rondo
