#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "rondo/error.h"
#include "transport/control_message.h"
#include "transport/fabric.h"

namespace rondo {

// The control plane of one rank as a state machine: events go in with the time, actions come out. No clock, socket,
// thread or randomness inside, so a seeded simulator can cut and delay at every event. Not thread safe.
//
// Ranks are world ranks everywhere. Message texts name a member by its place in the communicator, and add the world
// rank where that differs: "rank 1 (world rank 5, host b, pid 17)".
class ControlLogic {
 public:
  using Time = int64_t;  // milliseconds of a clock that never goes back

  struct Settings {
    int rank = 0;
    std::vector<std::string> names;  // by rank: "host b, pid 17"
    std::vector<int> neighbors;      // ranks with a control connection to this one, ascending
    // A failed data link waits so long for a better reason: an abort, a goodbye, a death.
    Time link_grace_ms = 100;
    // Deaths so close together are reported as one; later ones are added to what was reported. A killed host closes the
    // connections of all its processes within a few milliseconds (loopback: under 1 ms between two processes killed by
    // one command).
    Time collect_ms = 20;
    // Two answers so far apart, and no byte moved between them, prove that a peer sleeps in send or recv.
    Time p2p_confirm_ms = 200;
  };

  // --- actions
  struct Send {
    int peer = -1;
    ControlBody body;
  };
  struct Fail {  // CommunicatorEvents::on_failure; after a loss again for each further death, with all of them
    uint64_t communicator = 0;
    Error error;
  };
  struct PeerLeft {  // CommunicatorEvents::on_peer_left
    uint64_t communicator = 0;
    int peer = -1;
    uint64_t last_sequence = 0;
  };
  struct Note {  // for the log: a death after a failure that had another reason
    std::string text;
  };
  using Action = std::variant<Send, Fail, PeerLeft, Note>;

  explicit ControlLogic(Settings settings);

  // What has to be done since the last call, in order.
  std::vector<Action> take_actions();
  // When tick() is due; nullopt: nothing waits.
  std::optional<Time> next_time() const;

  // --- events from this rank
  void open(Time now, uint64_t communicator, std::vector<int> members);
  void decline(Time now, uint64_t communicator, const std::vector<int>& members, const Error& error);
  void close(Time now, uint64_t communicator, uint64_t last_sequence);
  // Every other member said goodbye or is lost, or the communicator has failed.
  bool all_left(uint64_t communicator) const;
  // The end of close(): nothing more happens to this communicator.
  void forget(uint64_t communicator);
  void stalled(Time now, uint64_t communicator, uint64_t sequence, const CallState& own);
  void link_failed(Time now, uint64_t communicator, int peer, const Error& error);
  void abort(Time now, uint64_t communicator, const Error& error);
  void leave();  // the goodbye of this process

  // --- events from outside
  void receive(Time now, int from, const ControlBody& body);  // all but queries
  void query(int from, const QueryMessage& question, const CallState& own);
  void connection_ended(Time now, int peer, const std::string& why);
  void tick(Time now);

  // --- questions
  bool is_open(uint64_t communicator) const { return groups_.count(communicator) != 0; }
  // False: the communicator is open here, and that rank is no member of it.
  bool may_join(uint64_t communicator, int peer) const;
  bool failed(uint64_t communicator) const;
  // Members that have not made the call; once any was asked, of those that were asked about it or have left.
  std::vector<int> absent(uint64_t communicator, uint64_t sequence) const;
  bool gone(int peer) const;  // lost, left, or its start failed
  bool anyone_lost() const { return !lost_.empty() || !resigned_.empty(); }
  // The ranks that died, before any communicator is open; nullopt: none has.
  std::optional<Error> death() const;
  std::string name(int peer) const;

 private:
  struct Member {
    bool left = false;  // said goodbye to the communicator, or to everybody
    bool lost = false;
    uint64_t last_sequence = 0;
    uint64_t asked = 0;                   // about which sequence last
    std::optional<AnswerMessage> answer;  // the last one
    // Since when its answers show it in the same p2p call without a byte moving, and which; -1: not in one.
    Time p2p_since = -1;
    std::string p2p_text;
    uint64_t p2p_moved = 0;
  };
  struct Suspicion {
    int peer = -1;
    Error error;
    Time due = 0;
  };
  struct Stall {
    uint64_t sequence = 0;
    CallState own;
    bool p2p_suspected = false;
  };
  struct Group {
    std::vector<int> order;         // members as given: their index is their rank in the communicator
    std::map<int, Member> members;  // the others
    std::optional<Error> failure;   // as it was delivered
    bool closing = false;
    std::map<int, std::string> losses;  // not yet reported: rank and why
    Time losses_due = 0;
    std::vector<Suspicion> suspicions;
    std::optional<Stall> stall;
    size_t questions = 0;  // so far
  };
  // A rank whose start failed because of others.
  struct Resigned {
    std::vector<int> culprits;
    std::string why;
  };
  // What came for a communicator that is not open here yet.
  struct Early {
    std::map<int, uint64_t> goodbyes;
    std::optional<std::pair<int, AbortMessage>> abort;
  };

  Group* find(uint64_t communicator);
  const Group* find(uint64_t communicator) const;
  Early* early(uint64_t communicator);
  std::string name_in(const Group& group, int peer) const;

  void on(Time now, int from, const AbortMessage& message);
  void on(Time now, int from, const AnswerMessage& message);
  void on(Time now, int from, const ByeMessage& message);
  void on(Time now, int from, const LeaveMessage& message);
  void on(Time now, int from, const LostMessage& message);

  void peer_lost(Time now, int peer, const std::string& why);
  void peer_left(int peer);
  void resign(Time now, int from, const Error& error);
  void excuse(Time now, uint64_t communicator, Group& group, int peer, const Resigned& resigned);
  void lose(Time now, uint64_t communicator, Group& group, int peer, const std::string& why);
  void lose_too(uint64_t communicator, Group& group, int peer, const std::string& why);
  void name_too(const Group& group, int peer, const std::string& why, Error& error) const;
  void member_left(uint64_t communicator, Group& group, int peer, uint64_t last_sequence);
  void tell_neighbors(int except, const LostMessage& message);
  void compare(Time now, uint64_t communicator, Group& group, int peer);
  bool stuck_in_p2p(const Group& group, int peer) const;
  void mismatch(uint64_t communicator, Group& group, int peer, const std::string& theirs);
  Error loss_error(const Group& group) const;
  enum class Audience { kMembers, kNeighbors };
  void fail(uint64_t communicator, Group& group, Error error, Audience audience, int except);

  Settings settings_;
  std::map<uint64_t, Group> groups_;
  std::map<uint64_t, Early> early_;
  std::deque<uint64_t> early_order_, closed_order_;
  std::map<uint64_t, std::optional<Error>> closed_;  // and how it had failed
  std::map<int, std::string> lost_;                  // and why
  std::set<int> left_;
  std::map<int, Resigned> resigned_;
  std::vector<Action> actions_;
};

}  // namespace rondo
