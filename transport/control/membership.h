#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace rondo {

// A set of members of a communicator, by their rank in it.
using MemberSet = std::vector<bool>;

// What members agree on.
struct Decision {
  MemberSet members;   // who goes on
  bool grown = false;  // as the communicator with newcomers, which all of them have opened
  bool operator==(const Decision&) const = default;
};

// One message between two members. Sets are empty, or have a place for each member of the communicator.
struct MembershipMessage {
  // Values are on the wire. kPrepare to kRefuse and kAbsent carry the ballot that they are about, kJoin the one that
  // the sender has promised.
  enum class Kind : uint8_t {
    kJoin = 0,      // the sender has called shrink(): to its leader, or from a leader to those that it waits for
    kPrepare = 1,   // the leader opens a ballot
    kPromise = 2,   // takes part in no lower one; what the sender has accepted
    kPropose = 3,   // value: who shall go on
    kAccept = 4,    // of the proposal
    kRefuse = 5,    // ballot: the sender has promised that one, which is higher
    kDecided = 6,   // value: who goes on
    kNoQuorum = 7,  // value: who has promised, which is no quorum
    kAbsent = 8,    // to a leader that has opened a ballot: the sender lives, and has not called shrink()
  };
  // Ordered by round, then by leader: two members never open the same one.
  struct Ballot {
    uint32_t round = 0;  // 0: none
    uint32_t leader = 0;
    auto operator<=>(const Ballot&) const = default;
  };
  uint64_t communicator = 0;
  Kind kind = Kind::kJoin;
  Ballot ballot, accepted;
  // In kPromise: accepted in the ballot `accepted`. Without members: `grown` is whether the sender has opened it.
  Decision value;
  MemberSet lost;  // with whom the sender cannot go on
  MemberSet dead;  // whom it knows to have ended
};

// Members of a communicator agree on which of them go on after a failure. At most one set of members does, even if more
// members die, stop or are cut off while they agree.
// One member's part as a state machine: no clock, socket, thread or randomness inside. Not thread safe.
//
// This is Paxos for one value. The leader is the lowest member that this one has not lost; safety does not rest on
// there being one. The value of a first ballot is the set of members that have promised, less those that cannot reach
// one another; it is grown where each of these has opened the communicator with newcomers.
// Two ballots cannot decide differently, since any two quorums share a member that lives, or all of the first are dead:
// a quorum is a majority of the members, half of them with the lowest, or all but those that are proven to have ended.
// A member may be lost without being dead: a closed connection proves nothing, and such a one counts.
//
// The dead may not be taken off before the majority is counted: three of {0, ..., 4} decide, two of them die, and the
// two others, a majority of the living, would decide anew while the third goes on.
class Membership {
 public:
  using Time = int64_t;  // milliseconds of a clock that never goes back
  using Message = MembershipMessage;
  using Ballot = MembershipMessage::Ballot;

  struct Settings {
    int size = 0, own = 0;
    // What was not answered is said again, since a message may have died with a rank on its way.
    Time resend_ms = 100;
    // A ballot without a quorum waits this long for proofs of deaths: the kernel ends a process a little later than its
    // sockets.
    Time proof_ms = 1'000;
    // A member that says nothing and is not lost has this long to answer a ballot: its link or its process may come
    // back.
    Time suspicion_ms = 10'000;
    // A member whose timers come this late, though they are resend_ms apart, was stopped itself.
    Time stopped_ms = 500;
    // A leader asks the members that it waits for at this interval whether they have gone on without it.
    Time ask_ms = 1'000;
    // Once the patience is over, a leader that says nothing is passed over after this time, and the next after twice.
    Time skip_ms = 250;
    // After the patience and the suspicion the call ends within this time.
    Time end_ms = 5'000;
  };
  enum class Outcome {
    kNone,
    kGoesOn,
    kLeftOut,   // others go on
    kNoQuorum,  // and so nobody goes on that this member can reach
    kTimeout,
  };

  explicit Membership(const Settings& settings);

  // --- events
  // This member calls shrink(); opened: grow(), and it keeps the communicator with newcomers until there is a decision.
  // Members that have not called within the patience are left out. Again after an outcome other than kGoesOn: another
  // try.
  void join(Time now, Time patience_ms, bool opened);
  void receive(Time now, int from, const Message& message);
  void lost(Time now, int member);   // nothing comes from it any more, and nothing goes to it
  void parted(int member);           // its messages come, and no data reaches it: the two do not go on together
  void ended(Time now, int member);  // proven: it has died, or has left in good order
  void tick(Time now);

  // Messages to be sent since the last call.
  std::vector<std::pair<int, Message>> take_messages() { return std::exchange(messages_, {}); }
  // When tick() is due; nullopt: nothing waits.
  std::optional<Time> next_time() const;

  // --- questions
  Outcome outcome() const { return outcome_; }
  // Who goes on, once this member knows it, even if it has not called.
  const std::optional<Decision>& decision() const { return decision_; }
  // For whose word this one waits, or has waited to the end: the leader's, or, leading, of all that have not answered.
  std::vector<int> awaited() const;
  bool is_dead(int member) const { return dead_[static_cast<size_t>(member)]; }

 private:
  // kCollect: no ballot of this member's is open, and it waits for others to call. kPrepare: it asks for promises.
  // kPropose: it asks for acceptance.
  enum class Phase { kCollect, kPrepare, kPropose };
  // The proposal that a member has accepted last, and in which ballot.
  struct Accepted {
    Ballot ballot;
    Decision value;
  };

  // The lowest member that can be reached and was not passed over; this one, if there is none below it.
  int leader() const;
  // Members that live as far as is known and have not called, as far as this one has heard.
  std::vector<int> absent() const;
  void go_on(Time now);
  void ask_leader(Time now, int leader);
  void ask_absent(Time now);
  void excuse_own_stop(Time now);
  void lead(Time now);
  void begin_ballot(Time now);
  void propose(Time now);
  void decide(Decision value);
  void end(Outcome outcome);
  void take_reports(int from, const Message& message);
  void on_prepare(Time now, int from, const Message& message);
  void on_no_quorum(int from, const Message& message);
  void on_propose(Time now, int from, const Message& message);
  MemberSet those_that_reach_one_another(const MemberSet& among) const;
  MemberSet lost_or_parted() const;
  bool is_quorum(const MemberSet& set) const;
  bool all_answered() const;
  Time end_at() const { return deadline_ + settings_.suspicion_ms + settings_.end_ms; }
  Message message(Message::Kind kind, Ballot ballot) const;
  Message question() const;
  template <typename Whom>
  void send_to(const Message& news, Whom whom);
  void send(int member, Message message) { messages_.emplace_back(member, std::move(message)); }
  void step_down(Time now);
  // Nothing is sent to the others, and no answer of theirs is waited for.
  bool reachable(size_t member) const { return !lost_[member] && !dead_[member]; }

  const Settings settings_;
  const size_t size_, own_;
  MemberSet lost_, parted_, dead_, skipped_;
  std::vector<std::pair<int, Message>> messages_;
  Outcome outcome_ = Outcome::kNone;
  std::optional<Decision> decision_;

  bool joined_ = false;  // and the call has not ended
  bool opened_ = false;
  // now_: the last event's. deadline_: the patience is over. resend_at_: what was not answered is said again. skip_at_:
  // the leader is passed over. ask_at_: a leader asks the absent again.
  Time now_ = 0, deadline_ = 0, resend_at_ = 0, skip_at_ = 0, ask_at_ = 0;
  int asked_ = -1;                          // the leader that was told
  std::map<int, Message> held_;             // of leaders, from before join()
  MemberSet has_joined_;                    // as far as this member has heard
  std::map<int, MemberSet> lost_by_other_;  // what others have lost

  // The acceptor's part: kept for as long as this object.
  Ballot promised_;
  std::optional<Accepted> accepted_;

  // The leader's part.
  Phase phase_ = Phase::kCollect;
  Ballot ballot_;
  uint32_t highest_round_ = 0;
  Time began_at_ = 0;   // the phase
  Time retry_at_ = 0;   // after a refusal
  MemberSet answered_;  // have promised or accepted in this phase
  MemberSet idle_;      // live, and had not called when this ballot was opened
  MemberSet have_opened_;
  // The proposal that was accepted in the highest ballot, among the promises of this one. It binds this leader.
  std::optional<Accepted> newest_;
  Decision value_;
};

}  // namespace rondo
