#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/control/communicator/inquiry.h"

// Inquiry: whom a call or a message waits for.

namespace rondo {

// This rank's own finding first: what another one has said may be older.
std::string Inquiry::blame(Time now, uint64_t sequence) const {
  if (sequence == kMessagesSequence) return waited_ && waited_->in_p2p ? find_wait(now, *waited_).text : "";
  if (life_.failure() || !stall_ || stall_->sequence != sequence) return "";
  const std::string own = find_blame(now).text();
  return own.empty() ? stall_->heard : own;
}

// For the status: read only, and never logged.
Waiting Inquiry::waiting(Time now, uint64_t sequence, const CallState& messages) const {
  Waiting result;
  if (life_.failure()) return result;
  if (stall_ && stall_->sequence == sequence) {
    const Blame blame = find_blame(now);
    for (const Blame::Rank& rank : blame.ranks) result.ranks.push_back(rank.rank);
    if (is_cause(blame)) result.sentence = blame.text();
  } else if (messages.in_p2p) {
    if (messages.p2p_peer >= 0) result.ranks = {members_.place(messages.p2p_peer)};
    result.sentence = find_wait(now, messages).text;
  }
  return result;
}

// Said once for each cause, by one rank of the communicator: the others have its sentence for their errors.
void Inquiry::say_blame(Time now) {
  stall_->blame_due = -1;
  if (!stall_->heard.empty() || !speaks_for(now)) return;
  const Blame blame = find_blame(now);
  if (!is_cause(blame) || blame.same_cause(stall_->said)) return;
  stall_->said = blame;
  rank_.actions.push_back(control::Note{blame.text()});
  for (const auto& [peer, member] : life_.others()) {
    if (member.left || rank_.departures.gone(peer)) continue;
    rank_.actions.push_back(control::Send{peer, BlameMessage{members_.communicator(), stall_->sequence, blame.text()}});
  }
}

// Whether this explains the wait. A rank does; a link only if it moves less than slow_percent of its best rate, since a
// call may take long for its size alone.
bool Inquiry::is_cause(const Blame& blame) const {
  if (blame.empty()) return false;
  return !blame.ranks.empty() ||
         blame.links[0].rate.bytes_per_second * 100 < blame.links[0].rate.best * rank_.settings.slow_percent;
}

// Whether this is the lowest rank that waits in the call, so that one log has the sentence. A lower rank that has not
// answered may wait in it.
bool Inquiry::speaks_for(Time now) const {
  return std::none_of(others_.begin(), others_.end(), [&](const auto& entry) {
    const auto& [peer, member] = entry;
    if (peer > rank_.settings.rank || !life_.others().at(peer).here() || blame_of(now, peer, 0)) return false;
    return !member.answer || member.answer->sequence != stall_->sequence || !member.answer->state.finished;
  });
}

// Ranks are to blame before links: a rank that stands still or is late also leaves its links idle. Peers that an answer
// names may be any numbers, so a link between strangers is left out.
Blame Inquiry::find_blame(Time now) const {
  Blame blame;
  blame.number = stall_->sequence - std::min(stall_->sequence, kMeetingSequence);
  blame.call = stall_->own.text;
  uint64_t waited_ms = stall_->own.since_ms;
  std::vector<std::pair<int, LinkRate>> links{{rank_.settings.rank, stall_->own.slowest}};
  for (const auto& [peer, member] : others_) {
    if (!member.answer || member.answer->sequence != stall_->sequence) continue;
    waited_ms = std::max(waited_ms, member.answer->state.since_ms);
    links.emplace_back(peer, member.answer->state.slowest);
  }
  blame.waited_ms = static_cast<int64_t>(waited_ms);
  for (const auto& [peer, member] : others_) {
    if (auto rank = blame_of(now, peer, blame.waited_ms)) blame.ranks.push_back(std::move(*rank));
  }
  if (!blame.ranks.empty()) return blame;
  std::erase_if(links, [&](const auto& link) {
    return link.second.peer != rank_.settings.rank && others_.count(link.second.peer) == 0;
  });
  const auto slowest = std::min_element(links.begin(), links.end(), [](const auto& one, const auto& other) {
    return one.second.share() < other.second.share();
  });
  if (slowest == links.end()) return blame;
  blame.links.push_back({members_.name(slowest->first), members_.name(slowest->second.peer), slowest->second});
  return blame;
}

// nullopt: it takes part in the call, or has left, or nothing is known of it. Silence counts before lateness, since it
// explains it.
std::optional<Blame::Rank> Inquiry::blame_of(Time now, int peer, int64_t waited_ms) const {
  if (!life_.others().at(peer).here()) return std::nullopt;
  if (const Time silent = silence_of(now, peer); silent > 0) {
    return Blame::Rank{members_.name(peer), Blame::Why::kStopped, silent, members_.place(peer)};
  }
  const Member& member = others_.at(peer);
  if (!member.answer || member.answer->state.current >= stall_->sequence) return std::nullopt;
  const std::string& elsewhere = member.answer->state.text;
  return Blame::Rank{members_.name(peer), Blame::Why::kLate, waited_ms, members_.place(peer),
                     elsewhere.empty() ? "" : fmt::format("{}, and this call is of {}", elsewhere, members_.title())};
}

// Milliseconds without an answer, longer than a rank that runs takes; else 0.
Inquiry::Time Inquiry::silence_of(Time now, int peer) const {
  const Liveness::Settings& watched = rank_.settings.liveness;
  const Time since = others_.at(peer).unanswered_since;
  const Time unanswered = since < 0 ? 0 : now - since;
  const Time silent = std::max(unanswered, unanswered > 0 ? rank_.liveness.silence(now, peer) : 0);
  const Time patience = watched.heartbeat_ms + rank_.settings.answer_ms;
  return watched.heartbeat_ms > 0 && silent > patience ? silent : 0;
}

// --- whom a message waits for

// In a ring of waiting ranks each one finds the same ring, and the lowest says so.
void Inquiry::say_wait(Time now) {
  const CallState own = std::exchange(wait_, std::nullopt)->own;
  if (!own.in_p2p) return;
  const MessageWait wait = find_wait(now, own);
  const int lowest = *std::min_element(wait.chain.begin(), wait.chain.end());
  if (wait.in_ring && lowest < rank_.settings.rank) return;  // it says so
  rank_.actions.push_back(control::Note{wait.text});
}

// Follows the peers of waiting ranks, by their answers. The chain names a rank once, so it ends. A rank whose answer is
// missing, or which waits for any peer, ends it, too.
Inquiry::MessageWait Inquiry::find_wait(Time now, const CallState& own) const {
  MessageWait wait{fmt::format("{} has waited {} in {}", members_.own_name(),
                               time_text(static_cast<int64_t>(own.since_ms)), own.p2p_text),
                   {rank_.settings.rank}};
  for (int next = own.p2p_peer; next >= 0;) {
    const auto seen = std::find(wait.chain.begin(), wait.chain.end(), next);
    if (seen != wait.chain.end()) {
      wait.text += seen + 1 == wait.chain.end() ? ": it waits for itself" : ": these ranks wait for each other";
      wait.in_ring = seen == wait.chain.begin();
      return wait;
    }
    const auto found = others_.find(next);
    if (found == others_.end()) break;
    const std::optional<CallState>& messages = found->second.messages;
    wait.chain.push_back(next);
    if (const Time silent = silence_of(now, next); silent > 0) {
      wait.text += fmt::format("; {} made no progress for {}: its process was stopped, or its core was taken",
                               members_.name(next), time_text(silent));
    } else if (messages) {
      wait.text += fmt::format("; {} waits in {}", members_.name(next),
                               messages->in_p2p         ? messages->p2p_text
                               : messages->text.empty() ? "no message"
                                                        : messages->text);
    }
    next = messages && messages->in_p2p ? messages->p2p_peer : -1;
  }
  const auto waits = [this](const auto& entry) {
    const std::optional<CallState>& messages = entry.second.messages;
    return !life_.others().at(entry.first).here() || (messages && messages->in_p2p);
  };
  if (own.p2p_peer < 0 && std::all_of(others_.begin(), others_.end(), waits)) {
    wait.text += "; all other ranks wait in messages, too";
  }
  return wait;
}

}  // namespace rondo
