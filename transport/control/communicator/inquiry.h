#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "transport/control/blame.h"
#include "transport/control/communicator/communicator_life.h"
#include "transport/control/communicator/member_names.h"
#include "transport/control/communicator/rank_view.h"
#include "transport/fabric.h"

namespace rondo {

// The questions of a rank whose call or message stalls, and what the answers say: whether the members disagree, and
// whom it waits for. A state machine without clock, socket or thread; part of ControlLogic. Nothing of it moves once
// the communicator has failed or closes. Not thread safe.
class Inquiry {
 public:
  using Time = int64_t;  // milliseconds of a clock that never goes back

  // All of them outlive it.
  Inquiry(const MemberNames& members, const CommunicatorLife& life, const RankView& rank);

  // Asks members what they do in that call, or in messages (kMessagesSequence). own: what this rank does.
  void stalled(Time now, uint64_t sequence, const CallState& own, Ask ask);
  // What two ranks disagree about, if it is proven now.
  std::optional<Error> receive(Time now, int from, const AnswerMessage& message);
  // The other rank's log has it.
  void receive(const BlameMessage& message);
  void tick(Time now);

  // --- questions
  // When tick() is due; nullopt: nothing waits.
  std::optional<Time> next_time() const;
  // Members that have not made the call; once any was asked, of those that were asked about it or have left.
  std::vector<int> absent(uint64_t sequence) const;
  // Blame::text() of the call that was asked about last; of kMessagesSequence what the log says of this rank's wait.
  std::string blame(Time now, uint64_t sequence) const;
  // Whom this rank waits for in that call, while it lasts, else in a message (its CallState).
  Waiting waiting(Time now, uint64_t sequence, const CallState& messages) const;

 private:
  // What is known of another member by its answers.
  struct Member {
    uint64_t asked = 0;                   // about which sequence last
    std::optional<AnswerMessage> answer;  // the last one
    Time unanswered_since = -1;           // the first question without an answer; -1: there is none
    std::optional<CallState> messages;    // its answer to the last question about these
    // Since when its answers show it in the same p2p call without a byte moving, and which; -1: not in one.
    Time p2p_since = -1;
    std::string p2p_text;
    uint64_t p2p_moved = 0;
    uint64_t p2p_looks = 0;
  };
  // The newest call that stalled here. A later one replaces it, and takes no answers of it over.
  struct Stall {
    uint64_t sequence = 0;
    CallState own;
    Time blame_after_ms = 0;  // the next time: since the call began
    Time blame_due = -1;      // -1: not now
    Blame said = {};          // by this rank, in the log
    std::string heard = {};   // by another rank: its sentence
  };
  // This rank waits for a message, and has asked the others.
  struct Wait {
    CallState own;
    Time due = 0;  // when it is said what for
  };
  // A wait for a message, followed from this rank to the one that it waits for, and on from there.
  struct MessageWait {
    std::string text;
    std::vector<int> chain;  // this rank first
    bool in_ring = false;    // the last one waits for this rank
  };

  void stalled_in_call(Time now, uint64_t sequence, const CallState& own);
  void ask_members(Time now, uint64_t sequence, Ask ask);
  std::optional<Error> compare(Time now, int peer);
  bool stuck_in_p2p(int peer) const;
  Error mismatch(int peer, const std::string& theirs) const;

  // inquiry_blame.cc
  void say_blame(Time now);
  bool is_cause(const Blame& blame) const;
  bool speaks_for(Time now) const;
  Blame find_blame(Time now) const;
  std::optional<Blame::Rank> blame_of(Time now, int peer, int64_t waited_ms) const;
  Time silence_of(Time now, int peer) const;
  void say_wait(Time now);
  MessageWait find_wait(Time now, const CallState& own) const;

  const MemberNames& members_;
  const CommunicatorLife& life_;
  const RankView& rank_;
  // By world rank.
  std::map<int, Member> others_;  // by world rank
  // Counts members asked, so that a rank which asks only some of them goes on where it stopped.
  size_t questions_ = 0;  // so far
  std::optional<Stall> stall_;
  std::optional<Wait> wait_;
  std::optional<CallState> waited_;  // what this rank did at its last question about messages
};

}  // namespace rondo
