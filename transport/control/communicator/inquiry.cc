#include "transport/control/communicator/inquiry.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "transport/control/earlier.h"

namespace rondo {
namespace {

// By so much a peer's count of looks must grow between two answers: the first look may have begun before the first
// answer.
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

Inquiry::Inquiry(const MemberNames& members, const CommunicatorLife& life, const RankView& rank)
    : members_(members), life_(life), rank_(rank) {
  for (const auto& [peer, member] : life.others()) others_[peer];
}

// What the others said to an earlier question about messages proves nothing now, so it is forgotten first.
void Inquiry::stalled(Time now, uint64_t sequence, const CallState& own, Ask ask) {
  if (life_.failure() || life_.closing()) return;
  if (sequence == kMessagesSequence) {
    for (auto& [peer, member] : others_) member.messages.reset();
    wait_ = Wait{own, now + rank_.settings.answer_ms};
    waited_ = own;
  } else {
    stalled_in_call(now, sequence, own);
  }
  ask_members(now, sequence, ask);
}

// The cause is looked for when the call has lasted blame_after_ms, and then whenever it has lasted twice as long, so
// that a long wait does not fill the log.
void Inquiry::stalled_in_call(Time now, uint64_t sequence, const CallState& own) {
  const Time blame_after_ms = rank_.settings.blame_after_ms;
  if (!stall_ || stall_->sequence != sequence) {
    for (auto& [peer, member] : others_) member.p2p_since = member.unanswered_since = -1;
    stall_ = Stall{sequence, own, blame_after_ms};
  }
  stall_->own = own;
  if (blame_after_ms > 0 && own.since_ms >= static_cast<uint64_t>(stall_->blame_after_ms)) {
    stall_->blame_due = now + rank_.settings.answer_ms;
    while (static_cast<uint64_t>(stall_->blame_after_ms) <= own.since_ms) stall_->blame_after_ms *= 2;
  }
}

// Each rank begins behind itself, so that all members are asked equally often.
void Inquiry::ask_members(Time now, uint64_t sequence, Ask ask) {
  const std::vector<int>& ranks = members_.ranks();
  const size_t world = ranks.size();
  const auto own_place = static_cast<size_t>(members_.place(rank_.settings.rank));
  const size_t most = ask == Ask::kAll ? world : asked_at_once(world);
  for (size_t asked = 0; asked < most; ++asked) {
    const int peer = ranks[(own_place + 1 + questions_++) % world];
    if (peer == rank_.settings.rank) continue;
    Member& member = others_[peer];
    if (sequence != kMessagesSequence) member.asked = sequence;
    if (!life_.others().at(peer).here()) continue;
    if (member.unanswered_since < 0) member.unanswered_since = now;
    rank_.actions.push_back(control::Send{peer, QueryMessage{members_.communicator(), sequence}});
  }
}

// Any answer ends the member's silence, also one about an older call. Only one about the stalled call is compared.
std::optional<Error> Inquiry::receive(Time now, int from, const AnswerMessage& message) {
  if (life_.failure() || life_.closing()) return std::nullopt;
  const auto found = others_.find(from);
  if (found == others_.end()) return std::nullopt;
  found->second.unanswered_since = -1;
  if (message.sequence == kMessagesSequence) {
    found->second.messages = message.state;
    return std::nullopt;
  }
  found->second.answer = message;
  return stall_ && stall_->sequence == message.sequence ? compare(now, from) : std::nullopt;
}

// No error: a sentence for this rank's own errors, which says nothing in the log here. One about an earlier call has
// come late, and is dropped.
void Inquiry::receive(const BlameMessage& message) {
  if (stall_ && stall_->sequence == message.sequence) stall_->heard = message.text;
}

void Inquiry::tick(Time now) {
  if (life_.failure()) return;
  if (stall_ && stall_->blame_due >= 0 && stall_->blame_due <= now) say_blame(now);
  if (wait_ && wait_->due <= now) say_wait(now);
}

std::optional<Inquiry::Time> Inquiry::next_time() const {
  std::optional<Time> next;
  if (life_.failure()) return next;
  if (stall_ && stall_->blame_due >= 0) next = stall_->blame_due;
  if (wait_) next = earlier(next, wait_->due);
  return next;
}

// A member that was asked and has not answered is absent, too: its newest known call is older.
std::vector<int> Inquiry::absent(uint64_t sequence) const {
  std::vector<int> result;
  for (const auto& [peer, member] : others_) {
    const CommunicatorLife::Member& life = life_.others().at(peer);
    if (questions_ > 0 && member.asked != sequence && life.here()) continue;
    const uint64_t answered = member.answer ? member.answer->state.current : 0;
    if (std::max(answered, life.last_sequence) < sequence) result.push_back(peer);
  }
  return result;
}

// What two answers to the same question prove. A fingerprint or route of 0 is not known (yet), and proves nothing.
// Sleep in a message is proven by two answers that are p2p_confirm_ms apart and alike but for the looks of the sleeping
// thread: one answer alone may have come just before the message.
std::optional<Error> Inquiry::compare(Time now, int peer) {
  Member& member = others_.at(peer);
  const CallState& own = stall_->own;
  const CallState& theirs = member.answer->state;
  if (own.fingerprint != 0 && theirs.fingerprint != 0 && own.fingerprint != theirs.fingerprint) {
    return mismatch(peer, "called " + theirs.text);
  }
  if (own.route != 0 && theirs.route != 0 && own.route != theirs.route) {
    return mismatch(peer,
                    fmt::format("called {} and takes another route for it ({}; here {}): this is a fault of Rondo",
                                theirs.text, route_text(theirs.route), route_text(own.route)));
  }
  if (!stuck_in_p2p(peer)) {
    member.p2p_since = -1;
  } else if (member.p2p_since < 0 || member.p2p_text != theirs.p2p_text || member.p2p_moved != theirs.p2p_moved) {
    member.p2p_since = now;
    member.p2p_text = theirs.p2p_text;
    member.p2p_moved = theirs.p2p_moved;
    member.p2p_looks = theirs.p2p_looks;
  } else if (now - member.p2p_since >= rank_.settings.p2p_confirm_ms && theirs.p2p_looks >= member.p2p_looks + kLooks) {
    return mismatch(peer, "waits in " + theirs.p2p_text);
  }
  return std::nullopt;
}

// `peer` sleeps in a send or recv that only ranks inside this collective could end, and no rank has a second thread
// that might do it: it will never make the call that we wait for.
bool Inquiry::stuck_in_p2p(int peer) const {
  const auto waits_for_us = [&](int partner) {
    if (partner == rank_.settings.rank) return true;
    const auto found = others_.find(partner);
    if (found == others_.end() || !found->second.answer) return false;
    const AnswerMessage& answer = *found->second.answer;
    return answer.sequence == stall_->sequence && answer.state.fingerprint != 0 && !answer.state.finished &&
           !answer.state.threads;
  };
  const CallState& theirs = others_.at(peer).answer->state;
  if (!theirs.in_p2p || theirs.threads || stall_->own.threads) return false;
  if (theirs.current >= stall_->sequence) return false;
  if (theirs.p2p_peer >= 0) return waits_for_us(theirs.p2p_peer);
  return std::all_of(others_.begin(), others_.end(),
                     [&](const auto& entry) { return entry.first == peer || waits_for_us(entry.first); });
}

Error Inquiry::mismatch(int peer, const std::string& theirs) const {
  const int rank = rank_.settings.rank;
  std::string mine = fmt::format("{} called {}", members_.own_name(), stall_->own.text);
  std::string other = fmt::format("{} {}", members_.name(peer), theirs);
  std::vector<int> ranks{rank, peer};
  // In the order of ranks: both ranks make the same text.
  if (peer < rank) {
    std::swap(mine, other);
    std::swap(ranks[0], ranks[1]);
  }
  return {ErrorCode::kMismatch,
          fmt::format("ranks disagree about collective call {} of this communicator: {}, but {}{}",
                      stall_->sequence - kMeetingSequence, mine, other, first_difference(mine, other)),
          std::move(ranks)};
}

}  // namespace rondo
