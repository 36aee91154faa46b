#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ring/base/newest.h"
#include "rondo/error.h"
#include "transport/control/communicator/communicator_life.h"
#include "transport/control/communicator/inquiry.h"
#include "transport/control/communicator/member_names.h"
#include "transport/control/communicator/rank_view.h"
#include "transport/control/communicator/shrinking.h"
#include "transport/control/control_action.h"
#include "transport/control/control_message.h"
#include "transport/control/control_settings.h"
#include "transport/control/departures.h"
#include "transport/control/liveness.h"
#include "transport/control/membership.h"
#include "transport/fabric.h"

namespace rondo {

// The control plane of one rank as a state machine: events go in with the time, actions come out. No clock, socket,
// thread or randomness inside, so a seeded simulator can cut and delay at every event. Not thread safe.
//
// It brings events to the machines that it consists of: Liveness and Departures of the rank, and for each communicator
// its life, its inquiry and its shrinking. Its owner asks those. Ranks are world ranks everywhere.
class ControlLogic {
 public:
  using Time = int64_t;  // milliseconds of a clock that never goes back

  // One open communicator. Its machines refer to each other and to the rank, so it is never moved: communicators_ is a
  // map.
  struct Communicator {
    Communicator(uint64_t id, std::vector<int> ranks, const RankView& rank)
        : members(id, std::move(ranks), rank.settings),
          life(members, rank),
          inquiry(members, life, rank),
          shrinking(members, life, rank) {}
    Communicator(const Communicator&) = delete;
    std::optional<Time> next_time() const;

    const MemberNames members;
    CommunicatorLife life;
    Inquiry inquiry;
    Shrinking shrinking;
  };

  explicit ControlLogic(ControlSettings settings);
  ControlLogic(const ControlLogic&) = delete;

  // What has to be done since the last call, in order.
  control::Actions take_actions() { return std::exchange(actions_, {}); }
  bool idle() const { return actions_.empty(); }
  // When tick() is due; nullopt: nothing waits.
  std::optional<Time> next_time() const;

  // --- events from this rank
  void open(Time now, uint64_t communicator, std::vector<int> members);
  // Without a word to the others, also after an open() that has thrown: no event of it comes any more.
  void undo_open(uint64_t communicator) noexcept { communicators_.erase(communicator); }
  void decline(uint64_t communicator, const std::vector<int>& members, const Error& error);
  // CommunicatorLife::close(). False: it is not open, or was closed before.
  bool close(uint64_t communicator, uint64_t last_sequence, const std::set<int>& streams);
  // The end of close(): nothing more happens to this communicator. The newest ones are remembered.
  void forget(uint64_t communicator);
  // Fabric::stalled(). own: what this rank does, asked of the engine without the owner's lock.
  void stalled(Time now, uint64_t communicator, uint64_t sequence, const CallState& own, Ask ask = Ask::kInTurn);
  void link_failed(Time now, uint64_t communicator, int peer, const Error& error);
  // The same, and the network is why.
  void way_failed(Time now, uint64_t communicator, int peer, const Error& error);
  void abort(uint64_t communicator, const Error& error);
  void leave();  // the goodbye of this process
  // Fabric::shrink(). It has ended once shrinking() is false.
  void shrink(Time now, uint64_t communicator, Time patience_ms, bool opened);

  // --- events from outside
  // The stream that it opened for this communicator has come.
  void streamed(uint64_t communicator, int peer);
  void receive(Time now, int from, const ControlBody& body);  // all but queries
  // The peer asks what this rank does in a call: `own`, as the engine has answered it, or why the communicator has
  // failed.
  void query(int from, const QueryMessage& question, const CallState& own);
  // The control connection to a neighbor has ended without this rank's doing.
  void connection_ended(Time now, int peer, const std::string& why);
  // Departures::unreached().
  void unreached(Time now, int peer, int by, const std::string& why);
  // Proven by the kernel or the launcher: its process is no more.
  void ended(Time now, int peer);
  // Due at next_time(), and harmless earlier.
  void tick(Time now);

  // --- questions
  const ControlSettings& settings() const { return settings_; }
  Liveness& liveness() { return liveness_; }  // is told of connections, and of all that comes
  const Departures& departures() const { return departures_; }
  // nullptr: it is not open here.
  Communicator* find(uint64_t communicator);
  const Communicator* find(uint64_t communicator) const;
  // It is open and has not failed.
  bool sound(uint64_t communicator) const;
  // False: the communicator is open here, and that rank is no member of it.
  bool may_join(uint64_t communicator, int peer) const;
  // Every other member said goodbye or is lost, or the communicator has failed, or is not open any more.
  bool all_left(uint64_t communicator) const;
  bool shrinking(uint64_t communicator) const;
  // Shrinking::result(). Throws Exception(kClosed) where it is not open any more.
  Shrunk shrunk(uint64_t communicator) const;

 private:
  // What is remembered of a communicator that this rank has closed.
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

  Early* early(uint64_t communicator);
  void on(Time now, int from, const AbortMessage& message);
  void on(Time now, int from, const AnswerMessage& message);
  void on(Time now, int from, const ByeMessage& message);
  void on(Time now, int from, const BlameMessage& message);
  void on(Time now, int from, const MembershipMessage& message);
  void spread_news(Time now);
  void drive_memberships(Time now);
  void look_for_silence(Time now);

  const ControlSettings settings_;
  control::Actions actions_;
  Liveness liveness_;
  Departures departures_;
  const RankView view_;  // of those above
  std::map<uint64_t, Communicator> communicators_;
  // By communicator: more than a program opens at once, and less than a megabyte.
  Newest<Early> early_{1024};
  Newest<Closed> closed_{4096};
};

}  // namespace rondo
