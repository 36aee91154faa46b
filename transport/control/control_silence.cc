#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/control/control_logic.h"

// ControlLogic: ranks that say nothing, and whom a call waits for.

namespace rondo {

// --- silence

void ControlLogic::look_for_silence(Time now) {
  const Liveness::Findings found = liveness_.tick(now);
  if (found.stopped_ms > 0) {
    actions_.push_back(Note{fmt::format("{} made no progress for {}: its process was stopped, or its core was taken",
                                        name(settings_.rank), time_text(found.stopped_ms))});
  }
  for (const auto& [peer, ms] : found.back) {
    actions_.push_back(Note{fmt::format("{} answers again, after {} of silence", name(peer), time_text(ms))});
  }
  for (const auto& [peer, ms] : found.silent) {
    actions_.push_back(Note{fmt::format("{} has not answered for {}: its process is stopped, or its host is cut off",
                                        name(peer), time_text(ms))});
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
      static_cast<uint32_t>(peer), LostMessage::Fate::kUnresponsive,
      fmt::format("has not answered for {} (RONDO_SUSPICION_MS): its process is stopped, or its host is cut off",
                  time_text(settings_.liveness.suspicion_ms))};
  actions_.push_back(Send{peer, message});
  actions_.push_back(Drop{peer});
  peer_lost(now, peer, {message.why, ErrorCode::kUnresponsive});
  tell_neighbors(peer, message);
}

void ControlLogic::given_up(const std::string& why) {
  if (!given_up_.empty()) return;
  given_up_ = fmt::format("{} {}", name(settings_.rank), why);
  liveness_.forget_all();
  for (auto& [id, group] : groups_) fail_given_up(id, group);
}

void ControlLogic::fail_given_up(uint64_t communicator, Group& group) {
  fail(communicator, group, {ErrorCode::kUnresponsive, given_up_, {settings_.rank}}, Audience::kMembers, -1);
}

// --- whom a call waits for

std::string ControlLogic::blame(Time now, uint64_t communicator, uint64_t sequence) const {
  const Group* group = find(communicator);
  if (group == nullptr || !group->stall || group->stall->sequence != sequence) return "";
  return find_blame(now, *group).text();
}

void ControlLogic::say_blame(Time now, uint64_t communicator, Group& group) {
  group.stall->blame_due = -1;
  if (!speaks_for(now, group)) return;
  const Blame blame = find_blame(now, group);
  if (blame.empty()) return;
  // A call may take long for its size alone.
  if (blame.ranks.empty() &&
      blame.links[0].rate.bytes_per_second * 100 >= blame.links[0].rate.best * settings_.slow_percent) {
    return;
  }
  actions_.push_back(Note{blame.text()});
  for (const auto& [peer, member] : group.members) {
    if (!member.left && !gone(peer)) actions_.push_back(Send{peer, BlameMessage{communicator, blame.text()}});
  }
}

// Whether this is the lowest rank that waits in the call, so that one says it, and all have the same sentence. A lower
// one that this rank has not heard of yet may wait.
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
    return Blame::Rank{name_in(group, peer), Blame::Why::kStopped, silent};
  }
  const uint64_t current = member.answer ? member.answer->state.current : 0;
  if (member.answer && current < group.stall->sequence) {
    return Blame::Rank{name_in(group, peer), Blame::Why::kLate, waited_ms};
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

// --- whom a message waits for: from this rank to the one that it waits for, and on from there

void ControlLogic::say_wait(Time now, uint64_t communicator, Group& group) {
  const CallState own = std::exchange(group.wait, std::nullopt)->own;
  if (!own.in_p2p) return;
  std::string text = fmt::format("{} has waited {} in {}", name_in(group, settings_.rank),
                                 time_text(static_cast<int64_t>(own.since_ms)), own.p2p_text);
  std::vector<int> chain{settings_.rank};
  for (int next = own.p2p_peer; next >= 0;) {
    const auto seen = std::find(chain.begin(), chain.end(), next);
    if (seen != chain.end()) {
      const bool of_own = seen == chain.begin();
      if (of_own && *std::min_element(chain.begin(), chain.end()) < settings_.rank) return;  // that one says it
      text += seen + 1 == chain.end() ? ": it waits for itself" : ": these ranks wait for each other";
      actions_.push_back(Note{text});
      for (auto peer = chain.begin() + 1; of_own && peer != chain.end(); ++peer) {
        actions_.push_back(Send{*peer, BlameMessage{communicator, text}});
      }
      return;
    }
    const auto found = group.members.find(next);
    if (found == group.members.end()) break;
    const Member& member = found->second;
    chain.push_back(next);
    if (const Time silent = silence_of(now, group, next); silent > 0) {
      text += fmt::format("; {} made no progress for {}: its process was stopped, or its core was taken",
                          name_in(group, next), time_text(silent));
    } else if (member.messages) {
      text += fmt::format("; {} waits in {}", name_in(group, next),
                          member.messages->in_p2p ? member.messages->p2p_text : "no message");
    }
    next = member.messages && member.messages->in_p2p ? member.messages->p2p_peer : -1;
  }
  const auto waits = [](const auto& entry) {
    return entry.second.left || entry.second.lost || (entry.second.messages && entry.second.messages->in_p2p);
  };
  if (own.p2p_peer < 0 && std::all_of(group.members.begin(), group.members.end(), waits)) {
    text += "; all other ranks wait in messages, too";
  }
  actions_.push_back(Note{text});
}

}  // namespace rondo
