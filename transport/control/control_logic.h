#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "rondo/error.h"
#include "transport/control/blame.h"
#include "transport/control/control_message.h"
#include "transport/control/liveness.h"
#include "transport/control/membership.h"
#include "transport/control/mesh_map.h"
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
    std::vector<std::string> names;                         // by rank: "host b, pid 17"
    std::vector<int> neighbors;                             // ranks with a control connection to this one, ascending
    MeshMap::NeighborsOf neighbors_of = control_neighbors;  // of the others
    // A failed data link waits so long for a better reason: an abort, a goodbye, a death.
    Time link_grace_ms = 100;
    // Deaths so close together are reported as one; later ones are added to what was reported. A killed host closes the
    // connections of all its processes within a few milliseconds (loopback: under 1 ms between two processes killed by
    // one command).
    Time collect_ms = 20;
    // Reports of ended connections between others come in bursts, and are looked at together.
    Time look_ms = 5;
    // Two answers so far apart prove that a peer sleeps in send or recv, if no byte moved between them and its thread
    // has begun to look in vain: one that another program keeps from running may find its message done.
    Time p2p_confirm_ms = 200;
    Liveness::Settings liveness;
    // A call that lasts so long, twice as long, ... has its cause said by one member, if it is a new one; 0: never.
    Time blame_after_ms = 0;
    // For the answers to a question.
    Time answer_ms = 100;
    // A link is said to be slow below this percentage of its best rate.
    uint64_t slow_percent = 25;
    // A stream whose opener has said goodbye comes within this time, or not at all.
    Time stream_ms = 5'000;
  };

  // --- actions
  struct Send {
    int peer = -1;
    ControlBody body;
  };
  struct Fail {  // CommunicatorEvents::on_failure; after a loss again for each further death, with all of them
    uint64_t communicator = 0;
    Error error;
    Stage stage = Stage::kMaking;
  };
  struct PeerLeft {  // CommunicatorEvents::on_peer_left
    uint64_t communicator = 0;
    int peer = -1;
    uint64_t last_sequence = 0;
  };
  struct Note {  // for the log: a warning
    std::string text;
  };
  // After what was sent to it: nothing is said to this rank any more, nor heard of it.
  struct Drop {
    int peer = -1;
  };
  // It passes no messages on any more. lost: ended(), once the kernel says that its process has ended.
  struct Gone {
    int peer = -1;
    bool lost = false;
  };
  // Those two pass no messages to each other any more.
  struct Cut {
    int one = -1, other = -1;
  };
  using Action = std::variant<Send, Fail, PeerLeft, Note, Drop, Gone, Cut>;

  explicit ControlLogic(Settings settings);

  // What has to be done since the last call, in order.
  std::vector<Action> take_actions();
  bool idle() const { return actions_.empty(); }
  // Nor does anything of that communicator wait for its time.
  bool idle(uint64_t communicator) const;
  // When tick() is due; nullopt: nothing waits.
  std::optional<Time> next_time() const;

  // --- events from this rank
  void open(Time now, uint64_t communicator, std::vector<int> members);
  // Without a word to the others, also after an open() that has thrown: no event of it comes any more.
  void undo_open(uint64_t communicator) noexcept { groups_.erase(communicator); }
  void decline(Time now, uint64_t communicator, const std::vector<int>& members, const Error& error);
  void made(uint64_t communicator);
  // streams: the members to whom this rank has opened a stream.
  // False: it was closed before.
  bool close(uint64_t communicator, uint64_t last_sequence, const std::set<int>& streams);
  // Every other member said goodbye or is lost, or the communicator has failed.
  bool all_left(uint64_t communicator) const;
  // The end of close(): nothing more happens to this communicator.
  void forget(uint64_t communicator);
  void stalled(Time now, uint64_t communicator, uint64_t sequence, const CallState& own, Ask ask = Ask::kInTurn);
  void link_failed(Time now, uint64_t communicator, int peer, const Error& error);
  // The same, and the network is why: from the second time on shrink() parts the two.
  void way_failed(Time now, uint64_t communicator, int peer, const Error& error);
  void abort(Time now, uint64_t communicator, const Error& error);
  void leave();  // the goodbye of this process
  // Fabric::shrink(). It has ended once shrinking() is false.
  void shrink(Time now, uint64_t communicator, Time patience_ms, bool opened);

  // --- events from outside
  void connected(Time now, int peer) { liveness_.watch(now, peer); }
  // The stream that it opened for this communicator has come.
  void streamed(uint64_t communicator, int peer);
  // Something has come on the connection to it, of any sender.
  void heard(Time now, int peer) { liveness_.heard(now, peer); }
  void receive(Time now, int from, const ControlBody& body);  // all but queries
  void query(int from, const QueryMessage& question, const CallState& own);
  void connection_ended(Time now, int peer, const std::string& why);
  // `by`, whose start goes on, finds nothing that listens at `peer` (StartLogic::unreached).
  void unreached(int peer, int by, const std::string& why);
  // Proven: its process is no more.
  void ended(Time now, int peer);
  void tick(Time now);

  // --- questions
  bool shrinking(uint64_t communicator) const;
  // Who goes on, in the communicator's order. Throws Exception: kEpochStale, kNoQuorum, kTimeout.
  Shrunk shrunk(uint64_t communicator) const;
  // The open communicators but one.
  std::vector<uint64_t> beside(uint64_t communicator) const;
  bool is_made(uint64_t communicator) const;
  // CallState::text of a call that this rank has not made: what it waits in on one of those.
  std::string elsewhere(uint64_t communicator, const std::string& waits_in) const;
  bool is_open(uint64_t communicator) const { return groups_.count(communicator) != 0; }
  // False: the communicator is open here, and that rank is no member of it.
  bool may_join(uint64_t communicator, int peer) const;
  bool failed(uint64_t communicator) const;
  // Members that have not made the call; once any was asked, of those that were asked about it or have left.
  std::vector<int> absent(uint64_t communicator, uint64_t sequence) const;
  // Blame::text() of the call that was asked about last; of kMessagesSequence what the log says of this rank's wait.
  std::string blame(Time now, uint64_t communicator, uint64_t sequence) const;
  // Whom this rank waits for in that call, while it lasts, else in a message (its CallState).
  Waiting waiting(Time now, uint64_t communicator, uint64_t sequence, const CallState& messages) const;
  bool gone(int peer) const;  // lost, left, or its start failed
  bool anyone_lost() const { return !lost_.empty() || start_failure_; }
  // Why no communicator will come about, before any is open: the ranks that died, or another rank's failed start.
  std::optional<Error> start_failure() const;
  std::string name(int peer) const { return rank_name(peer, settings_.names); }

 private:
  struct Member {
    bool left = false;  // said goodbye to the communicator, or to everybody
    bool lost = false;
    uint64_t last_sequence = 0;
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
  struct Suspicion {
    int peer = -1;
    Error error;
    Time due = 0;
  };
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
  // How a rank was lost: kPeerLost or kUnresponsive.
  struct Loss {
    std::string why;
    ErrorCode code = ErrorCode::kPeerLost;
  };
  struct Group {
    uint64_t id = 0;
    std::vector<int> order;         // members as given: their index is their rank in the communicator
    std::map<int, Member> members;  // the others
    std::optional<Error> failure;   // as it was delivered
    Stage stage = Stage::kMaking;   // of this rank; once it has failed, of the rank whose error that is
    bool closing = false;
    bool heard_all = false;      // closing, and so are all others
    std::map<int, Loss> losses;  // not yet reported
    Time losses_due = 0;
    std::vector<Suspicion> suspicions;
    std::optional<Stall> stall;
    std::optional<Wait> wait;
    std::optional<CallState> waited;       // what this rank did at its last question about messages
    std::set<int> streamed;                // members whose stream has come
    std::map<int, Time> streams_due;       // members that have left, but for PeerLeft: their stream has not come
    size_t questions = 0;                  // so far
    std::optional<Membership> membership;  // once anybody shrinks it
    std::optional<size_t> told;            // it knows these departures()
  };
  struct Closed {
    std::optional<Error> failure;
    Stage stage = Stage::kMaking;
    std::optional<Decision> decision;  // who has gone on, for those that still ask
  };
  // What came for a communicator that is not open here yet.
  struct Early {
    std::map<int, ByeMessage> goodbyes;
    std::set<int> streamed;
    std::optional<std::pair<int, AbortMessage>> abort;
  };

  Group* find(uint64_t communicator);
  const Group* find(uint64_t communicator) const;
  Early* early(uint64_t communicator);
  std::string name_in(const Group& group, int peer) const;
  static std::string communicator_name(const Group& group);
  static int place_in(const Group& group, int peer);
  static std::optional<Time> next_time(const Group& group);

  void on(Time now, int from, const AbortMessage& message);
  void on(Time now, int from, const AnswerMessage& message);
  void on(Time now, int from, const ByeMessage& message);
  void on(Time now, int from, const LeaveMessage& message);
  void on(Time now, int from, const LostMessage& message);
  void on(Time now, int from, const BlameMessage& message);
  void on(Time now, int from, const MembershipMessage& message);

  Membership& membership_of(Time now, Group& group);
  size_t departures() const;
  void tell_membership(Time now, Group& group);
  void drive_memberships(Time now);
  bool goes_on(const Group& group) const;
  bool alive(const Membership& membership, const Group& group, int place) const;

  void look_for_silence(Time now);
  void give_up(Time now, int peer);
  void given_up(int by, const std::string& why);
  void fail_if_given_up(uint64_t communicator, Group& group);
  Blame find_blame(Time now, const Group& group) const;
  bool is_cause(const Blame& blame) const;
  std::optional<Blame::Rank> blame_of(Time now, const Group& group, int peer, int64_t waited_ms) const;
  bool speaks_for(Time now, const Group& group) const;
  void say_blame(Time now, uint64_t communicator, Group& group);
  // A wait for a message, followed from this rank to the one that it waits for, and on from there.
  struct MessageWait {
    std::string text;
    std::vector<int> chain;  // this rank first
    bool in_ring = false;    // the last one waits for this rank
  };
  MessageWait find_wait(Time now, const Group& group, const CallState& own) const;
  void say_wait(Time now, Group& group);
  void stalled_in_call(Time now, Group& group, uint64_t sequence, const CallState& own);
  void ask_members(Time now, uint64_t communicator, Group& group, uint64_t sequence, Ask ask);
  int64_t silence_of(Time now, const Group& group, int peer) const;

  void peer_lost(Time now, int peer, const Loss& loss);
  void peer_left(Time now, int peer);
  void cut_off(Time now, int peer, LostMessage::Fate fate, const std::string& why);
  bool note_cut(Time now, int one, int other);
  void look_for_unreachable(Time now);
  void resign(Time now, int from, const Error& error);
  void excuse(Time now, uint64_t communicator, Group& group, int peer);
  void fail_start(const Error& error);
  void lose(Time now, uint64_t communicator, Group& group, int peer, const Loss& loss);
  void lose_too(uint64_t communicator, Group& group, int peer, const Loss& loss);
  std::string too_text(const Group& group, int peer, const Loss& loss) const;
  void name_too(const Group& group, int peer, const Loss& loss, Error& error) const;
  Time grace_ms(Time now, int peer, const Error& error) const;
  void member_left(Time now, Group& group, int peer, const ByeMessage& goodbye);
  void look_for_last(uint64_t communicator, Group& group);
  bool is_neighbor(int peer) const {
    return std::binary_search(settings_.neighbors.begin(), settings_.neighbors.end(), peer);
  }
  bool all_are_neighbors() const { return settings_.neighbors.size() + 1 == settings_.names.size(); }
  void tell_neighbors(int except, const LostMessage& message);
  void compare(Time now, uint64_t communicator, Group& group, int peer);
  bool stuck_in_p2p(const Group& group, int peer) const;
  void mismatch(uint64_t communicator, Group& group, int peer, const std::string& theirs);
  // died: what is said of a death, "died".
  Error loss_error(const std::map<int, Loss>& losses, const Group* group, const char* died) const;
  enum class Audience { kMembers, kNeighbors };
  void fail(uint64_t communicator, Group& group, Error error, Audience audience, int except);

  Settings settings_;
  std::map<uint64_t, Group> groups_;
  std::map<uint64_t, Early> early_;
  std::deque<uint64_t> early_order_, closed_order_;
  std::map<uint64_t, Closed> closed_;
  std::map<int, Loss> lost_;
  MeshMap map_;
  Time look_due_ = -1;            // who can still be reached; -1: no connection was lost since the last look
  std::map<int, Loss> reported_;  // by others, of ranks that may still be reached
  std::set<int> left_;
  std::set<int> once_failed_, parted_;  // no data reached them, though they live: once (a firewall may have forgotten a
                                        // connection), and again over a new connection
  std::set<int> ended_;                 // of those that are lost: proven
  std::map<int, std::string> resigned_;  // their start failed, and not because they died: why
  std::optional<Error> start_failure_;   // that of the first of them, where nobody died; or this rank's own
  std::set<int> given_up_by_;            // neighbors that have given this rank up; others may hear it
  std::string given_up_;                 // why the first of them has
  Liveness liveness_;
  std::vector<Action> actions_;
};

}  // namespace rondo
