#include "transport/control/membership.h"

#include <algorithm>
#include <utility>

namespace rondo {
namespace {

size_t count(const MemberSet& set) { return static_cast<size_t>(std::count(set.begin(), set.end(), true)); }

}  // namespace

Membership::Membership(const Settings& settings)
    : settings_(settings),
      size_(static_cast<size_t>(settings.size)),
      own_(static_cast<size_t>(settings.own)),
      lost_(size_),
      parted_(size_),
      dead_(size_),
      skipped_(size_),
      has_joined_(size_),
      answered_(size_),
      idle_(size_),
      have_opened_(size_) {}

// A leader also looks when the proof or the suspicion of its phase is over; any other member when it would pass over
// its leader.
std::optional<Membership::Time> Membership::next_time() const {
  if (!joined_) return std::nullopt;
  Time next = std::min(resend_at_, end_at());
  if (static_cast<size_t>(leader()) != own_) return std::min(next, skip_at_);
  if (phase_ == Phase::kCollect) return std::min(next, std::max(retry_at_, deadline_));
  for (const Time due : {began_at_ + settings_.proof_ms, began_at_ + settings_.suspicion_ms}) {
    if (due > now_) next = std::min(next, due);
  }
  return next;
}

std::vector<int> Membership::absent() const {
  std::vector<int> members;
  for (size_t i = 0; i < size_; ++i) {
    if (reachable(i) && !has_joined_[i]) members.push_back(static_cast<int>(i));
  }
  return members;
}

// A member that does not lead waits for its leader alone.
std::vector<int> Membership::awaited() const {
  const int leading = leader();
  if (static_cast<size_t>(leading) != own_) return {leading};
  if (phase_ == Phase::kCollect) return absent();
  std::vector<int> members;
  for (size_t i = 0; i < size_; ++i) {
    if (i != own_ && reachable(i) && !answered_[i]) members.push_back(static_cast<int>(i));
  }
  return members;
}

// --- events

// After an outcome without a decision another try begins at the start; what was promised and accepted stays, for safety
// rests on it. Messages of leaders that came before are heard now.
void Membership::join(Time now, Time patience_ms, bool opened) {
  if (joined_ || outcome_ == Outcome::kGoesOn) return;
  opened_ = opened;
  has_joined_[own_] = true;
  if (decision_) return decide(*decision_);
  outcome_ = Outcome::kNone;
  joined_ = true;
  now_ = now;
  deadline_ = now + patience_ms;
  resend_at_ = now;
  ask_at_ = now + settings_.ask_ms;
  skip_at_ = deadline_ + settings_.skip_ms;
  retry_at_ = 0;
  asked_ = -1;
  phase_ = Phase::kCollect;
  skipped_.assign(size_, false);
  for (const auto& [from, message] : std::exchange(held_, {})) receive(now, from, message);
  go_on(now);
}

// Departures are for good: lost_, parted_ and dead_ only grow.
void Membership::lost(Time now, int member) {
  const auto place = static_cast<size_t>(member);
  if (lost_[place]) return;
  lost_[place] = true;
  go_on(now);
}

void Membership::parted(int member) { parted_[static_cast<size_t>(member)] = true; }

void Membership::ended(Time now, int member) {
  const auto place = static_cast<size_t>(member);
  if (dead_[place]) return;
  dead_[place] = true;
  go_on(now);
}

void Membership::tick(Time now) { go_on(now); }

// A message whose sets do not fit this communicator is dropped: a proposal or decision, and anything that says a ballot
// was accepted, must name members. Once there is a decision, it answers whatever waits for one.
void Membership::receive(Time now, int from, const Message& message) {
  using Kind = Message::Kind;
  const auto fits = [&](const MemberSet& set) { return set.empty() || set.size() == size_; };
  const bool sound = fits(message.value.members) && fits(message.lost) && fits(message.dead) &&
                     (message.value.members.empty() ? message.kind != Kind::kPropose &&
                                                          message.kind != Kind::kDecided && message.accepted == Ballot{}
                                                    : true);
  if (!sound) return;
  if (message.kind == Kind::kDecided) return decide(message.value);
  if (decision_) {
    const bool waits = message.kind == Kind::kJoin || message.kind == Kind::kPrepare || message.kind == Kind::kPropose;
    if (!waits) return;
    Message answer = this->message(Kind::kDecided, {});
    answer.value = *decision_;
    return send(from, std::move(answer));
  }
  take_reports(from, message);
  highest_round_ = std::max(highest_round_, message.ballot.round);
  const bool current = joined_ && message.ballot == ballot_ && phase_ != Phase::kCollect;
  switch (message.kind) {
    case Kind::kJoin:
      // It may have called after the ballot was opened, or not have heard of it.
      if (joined_ && phase_ != Phase::kCollect && !answered_[static_cast<size_t>(from)]) {
        send(from, question());
      }
      break;
    case Kind::kPrepare:
    case Kind::kPropose:
      if (!joined_) {
        held_[from] = message;
        send(from, this->message(Kind::kAbsent, message.ballot));
      } else if (message.kind == Kind::kPrepare) {
        on_prepare(now, from, message);
      } else {
        on_propose(now, from, message);
      }
      break;
    case Kind::kPromise:
      if (!current || phase_ != Phase::kPrepare) break;
      answered_[static_cast<size_t>(from)] = true;
      have_opened_[static_cast<size_t>(from)] = message.value.grown;
      if (message.accepted != Ballot{} && (!newest_ || newest_->ballot < message.accepted)) {
        newest_ = {message.accepted, message.value};
      }
      break;
    case Kind::kAccept:
      if (current && phase_ == Phase::kPropose) answered_[static_cast<size_t>(from)] = true;
      break;
    case Kind::kRefuse:
      if (joined_ && message.ballot > ballot_) step_down(now);
      break;
    case Kind::kNoQuorum:
      if (joined_) on_no_quorum(from, message);
      break;
    case Kind::kAbsent:
      if (current) idle_[static_cast<size_t>(from)] = true;
      break;
    case Kind::kDecided:
      break;
  }
  go_on(now);
}

// Deaths are facts, and add up. What a member has lost is its own view, and its newest word replaces the older one.
void Membership::take_reports(int from, const Message& message) {
  for (size_t i = 0; i < message.dead.size(); ++i) dead_[i] = dead_[i] || message.dead[i];
  const bool calls = message.kind != Message::Kind::kNoQuorum && message.kind != Message::Kind::kAbsent;
  if (calls) has_joined_[static_cast<size_t>(from)] = true;
  if (message.kind != Message::Kind::kJoin && message.kind != Message::Kind::kPromise) return;
  lost_by_other_[from] = message.lost;
}

// A promise binds this member to refuse every lower ballot, also its own, which ends.
void Membership::on_prepare(Time now, int from, const Message& message) {
  if (message.ballot < promised_) return send(from, this->message(Message::Kind::kRefuse, promised_));
  promised_ = message.ballot;
  step_down(now);
  skip_at_ = std::max(skip_at_, now + settings_.suspicion_ms + settings_.skip_ms);  // the leader may wait so long
  Message answer = this->message(Message::Kind::kPromise, promised_);
  answer.value.grown = opened_;
  if (accepted_) {
    answer.accepted = accepted_->ballot;
    answer.value = accepted_->value;
  }
  send(from, std::move(answer));
}

// Acceptance is kept for as long as this object: a later leader must hear of it in the promise.
void Membership::on_propose(Time now, int from, const Message& message) {
  if (message.ballot < promised_) return send(from, this->message(Message::Kind::kRefuse, promised_));
  promised_ = message.ballot;
  step_down(now);
  accepted_ = {message.ballot, message.value};
  send(from, this->message(Message::Kind::kAccept, promised_));
}

// Ends this member's own ballot. Two leaders could outbid each other for ever, so each waits before its next ballot:
// the lower its place, the shorter.
void Membership::step_down(Time now) {
  if (phase_ == Phase::kCollect) return;
  phase_ = Phase::kCollect;
  retry_at_ = now + settings_.resend_ms * static_cast<Time>(1 + own_);
}

// A leader has no quorum. This member gives up, too, unless it reaches a member that the leader did not: then it passes
// over that leader, since another one may have a quorum.
void Membership::on_no_quorum(int from, const Message& message) {
  for (size_t i = 0; i < size_; ++i) {
    if (!reachable(i) || message.value.members.empty() || message.value.members[i]) continue;
    skipped_[static_cast<size_t>(from)] = true;
    return;
  }
  end(Outcome::kNoQuorum);
}

// --- what follows from them

// To all members that can be reached and for which `whom` is true.
template <typename Whom>
void Membership::send_to(const Message& news, Whom whom) {
  for (size_t i = 0; i < size_; ++i) {
    if (i != own_ && reachable(i) && whom(i)) send(static_cast<int>(i), news);
  }
}

// What the leader asks in this phase of its ballot.
Membership::Message Membership::question() const {
  Message asked = message(phase_ == Phase::kPrepare ? Message::Kind::kPrepare : Message::Kind::kPropose, ballot_);
  if (phase_ == Phase::kPropose) asked.value = value_;
  return asked;
}

int Membership::leader() const {
  for (size_t i = 0; i < own_; ++i) {
    if (reachable(i) && !skipped_[i]) return static_cast<int>(i);
  }
  return static_cast<int>(own_);
}

// Does what is due, as a leader or as a member that has one. Loops while it passes over leaders that are silent.
void Membership::go_on(Time now) {
  if (!joined_) return;
  excuse_own_stop(now);
  if (now >= end_at()) return end(Outcome::kTimeout);
  while (true) {
    const int leading = leader();
    if (static_cast<size_t>(leading) == own_) return lead(now);
    if (now < skip_at_) return ask_leader(now, leading);
    skipped_[static_cast<size_t>(leading)] = true;
    skip_at_ = now + settings_.skip_ms;
  }
}

// A member that was stopped itself has not read what the others have answered meanwhile: they have their time again.
void Membership::excuse_own_stop(Time now) {
  const Time late = now - std::exchange(now_, now);
  if (late <= settings_.stopped_ms) return;
  began_at_ += late;
  skip_at_ += late;
}

// At once where the leader is another one than before, else again after resend_ms.
void Membership::ask_leader(Time now, int leader) {
  if (leader == asked_ && now < resend_at_) return;
  asked_ = leader;
  resend_at_ = now + settings_.resend_ms;
  send(leader, message(Message::Kind::kJoin, promised_));
}

// Members that have not called may have gone on with another leader, whom this one cannot reach. They answer with the
// decision.
void Membership::ask_absent(Time now) {
  if (now < ask_at_) return;
  ask_at_ = now + settings_.ask_ms;
  for (const int member : absent()) send(member, message(Message::Kind::kJoin, promised_));
}

// In kCollect a ballot is opened once all have called, or the patience is over. A quorum of acceptances decides at
// once; a quorum of promises waits for the rest that may answer, since the proposal takes in only those that have
// promised.
void Membership::lead(Time now) {
  const bool again = now >= resend_at_;
  if (again) resend_at_ = now + settings_.resend_ms;
  if (phase_ == Phase::kCollect) {
    if (now < retry_at_ || (now < deadline_ && !absent().empty())) return ask_absent(now);
    return begin_ballot(now);
  }
  const bool all = all_answered(), quorum = is_quorum(answered_);
  const bool waited = all || now >= began_at_ + settings_.suspicion_ms;
  // Some of the absent may call yet: those that have passed over another leader.
  const bool settled = absent().empty() || now >= began_at_ + settings_.proof_ms;
  if (quorum && phase_ == Phase::kPropose) {
    const Decision value = value_;
    decide(value);
    Message news = message(Message::Kind::kDecided, ballot_);
    news.value = value;
    return send_to(news, [](size_t) { return true; });
  }
  if (quorum && phase_ == Phase::kPrepare && waited && settled) return propose(now);
  if (!quorum && now >= began_at_ + settings_.proof_ms && all) {
    Message news = message(Message::Kind::kNoQuorum, ballot_);
    news.value.members = answered_;
    send_to(news, [](size_t) { return true; });
    return end(Outcome::kNoQuorum);
  }
  if (again) send_to(question(), [this](size_t i) { return !answered_[i] && (has_joined_[i] || !idle_[i]); });
}

// The round is above all that this member has heard of, so that the promises are not refused. It promises to itself.
void Membership::begin_ballot(Time now) {
  ballot_ = {std::max(highest_round_, promised_.round) + 1, static_cast<uint32_t>(own_)};
  highest_round_ = ballot_.round;
  promised_ = ballot_;
  newest_ = accepted_;
  phase_ = Phase::kPrepare;
  began_at_ = now;
  resend_at_ = now + settings_.resend_ms;
  answered_.assign(size_, false);
  answered_[own_] = true;
  idle_.assign(size_, false);
  have_opened_.assign(size_, false);
  have_opened_[own_] = opened_;
  send_to(question(), [](size_t) { return true; });
  lead(now);
}

// Paxos. A promise may bring a proposal that was accepted before: then that one is proposed again, not this leader's
// own. Only members that have promised are asked to accept.
void Membership::propose(Time now) {
  value_.members = those_that_reach_one_another(answered_);
  value_.grown = true;
  for (size_t i = 0; i < size_; ++i) value_.grown = value_.grown && (!value_.members[i] || have_opened_[i]);
  if (newest_) value_ = newest_->value;
  phase_ = Phase::kPropose;
  began_at_ = now;
  accepted_ = {ballot_, value_};
  send_to(question(), [this](size_t i) { return bool{answered_[i]}; });
  answered_.assign(size_, false);
  answered_[own_] = true;
  lead(now);
}

// By this leader's quorum, or by word of another member. Those that are left out are told by each, since the leader may
// not reach them.
void Membership::decide(Decision value) {
  const bool called = joined_ || outcome_ != Outcome::kNone;
  if (!decision_) {
    decision_ = std::move(value);
    for (size_t i = 0; i < size_; ++i) {
      if (i == own_ || lost_[i] || decision_->members[i]) continue;  // else the leader may not reach it
      Message news = message(Message::Kind::kDecided, {});
      news.value = *decision_;
      send(static_cast<int>(i), std::move(news));
    }
  }
  joined_ = false;
  held_.clear();
  if (called || has_joined_[own_]) outcome_ = decision_->members[own_] ? Outcome::kGoesOn : Outcome::kLeftOut;
}

void Membership::end(Outcome outcome) {
  joined_ = false;
  outcome_ = outcome;
}

// Greedy, by ascending place: a member is taken if neither it nor any member taken before has lost the other.
MemberSet Membership::those_that_reach_one_another(const MemberSet& among) const {
  MemberSet chosen(size_);
  const auto has_lost = [&](size_t one, size_t other) {
    if (one == own_) return lost_[other] || parted_[other];
    const auto found = lost_by_other_.find(static_cast<int>(one));
    return found != lost_by_other_.end() && !found->second.empty() && found->second[other];
  };
  for (size_t i = 0; i < size_; ++i) {
    if (!among[i] || (i != own_ && !reachable(i))) continue;
    bool fits = true;
    for (size_t k = 0; k < i; ++k) fits = fits && !(chosen[k] && (has_lost(i, k) || has_lost(k, i)));
    chosen[i] = fits;
  }
  return chosen;
}

MemberSet Membership::lost_or_parted() const {
  MemberSet set = lost_;
  for (size_t i = 0; i < size_; ++i) set[i] = set[i] || parted_[i];
  return set;
}

// A majority; half of the members with the lowest one; or all but those that are proven dead. Any two such sets share a
// member, or all of one are dead.
bool Membership::is_quorum(const MemberSet& set) const {
  const size_t members = count(set);
  if (2 * members > size_ || (2 * members == size_ && set[0])) return true;
  for (size_t i = 0; i < size_; ++i) {
    if (!set[i] && !dead_[i]) return false;
  }
  return true;
}

// All that can be reached, but those that are known not to have called.
bool Membership::all_answered() const {
  for (size_t i = 0; i < size_; ++i) {
    if (i != own_ && reachable(i) && !answered_[i] && (has_joined_[i] || !idle_[i])) return false;
  }
  return true;
}

// Each message says who is dead, but for a decision, after which nobody counts. Those that ask or promise also say with
// whom the sender cannot go on.
Membership::Message Membership::message(Message::Kind kind, Ballot ballot) const {
  Message made;
  made.kind = kind;
  made.ballot = ballot;
  if (kind == Message::Kind::kJoin || kind == Message::Kind::kPromise) made.lost = lost_or_parted();
  if (kind != Message::Kind::kDecided) made.dead = dead_;
  return made;
}

}  // namespace rondo
