#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/control/communicator/member_names.h"
#include "transport/control/communicator/rank_view.h"

namespace rondo {

// A communicator on one rank: which members have left or are lost, and its failure. A state machine without clock,
// socket or thread; part of ControlLogic. Not thread safe.
class CommunicatorLife {
 public:
  using Time = int64_t;  // milliseconds of a clock that never goes back
  // Another member, as this rank knows it. A member that has left may still be lost later, while its stream has not
  // come.
  struct Member {
    bool left = false;  // said goodbye to the communicator, or to everybody
    bool lost = false;
    uint64_t last_sequence = 0;
    bool here() const { return !left && !lost; }
  };

  // members and rank outlive it.
  CommunicatorLife(const MemberNames& members, const RankView& rank);

  // --- events from this rank
  // It has the communicator.
  void made();
  // streams: the members to whom this rank has opened a stream. False: it was closed before.
  bool close(uint64_t last_sequence, const std::set<int>& streams);
  // The members have agreed on who goes on, this rank among them.
  void go_on() { goes_on_ = true; }
  // A data link to the peer is broken. It counts after a grace, unless a better reason comes before (grace_ms()).
  void link_failed(Time now, int peer, const Error& error);
  // This rank's own reason: goes to every member.
  void fail(Error error) { fail(std::move(error), Audience::kMembers, -1); }

  // --- events from outside
  void receive(int from, const AbortMessage& message);
  void receive(Time now, int from, const ByeMessage& message);
  // The stream that it opened for this communicator has come.
  void streamed(int peer);
  // Departures' findings. ControlLogic brings each to every communicator, also to those of which the rank is no member.
  void lost(Time now, int peer, const Loss& loss);
  void left(Time now, int peer, const ByeMessage& goodbye);
  // The start of that member failed after this rank's own was done.
  void resigned(Time now, int peer, const std::string& why);
  // No communicator comes about.
  void start_failed(const Error& error);
  // A neighbor has given this rank up.
  void given_up();
  void tick(Time now);

  // --- questions
  // When tick() is due; nullopt: nothing waits.
  std::optional<Time> next_time() const;
  const std::optional<Error>& failure() const { return failure_; }  // as it was delivered
  // Where this rank is; once it has failed, where the rank was whose error that is.
  Stage stage() const { return stage_; }
  bool closing() const { return closing_; }
  // Every other member said goodbye or is lost, or the communicator has failed.
  bool all_left() const;
  bool has(int peer) const { return others_.count(peer) != 0; }
  const std::map<int, Member>& others() const { return others_; }  // by world rank
  // Members that have said goodbye.
  size_t goodbyes() const { return goodbyes_; }

 private:
  // A broken link to a peer of which nothing better is known yet.
  struct Suspicion {
    int peer = -1;
    Error error;
    Time due = 0;
  };
  // kNeighbors: an abort that was received is passed on to neighbors alone. Each member does so once, and so it reaches
  // all of them.
  enum class Audience { kMembers, kNeighbors };
  // except: who has told it; -1: nobody. The first failure counts, and later calls do nothing.
  void fail(Error error, Audience audience, int except);
  bool fail_if_due(Time now);
  Error link_error(const Suspicion& suspicion) const;
  Time grace_ms(Time now, int peer, const Error& error) const;
  void trust(int peer);
  void lose_too(int peer, const Loss& loss);
  std::string too_text(int peer, const Loss& loss) const;
  void name_too(int peer, const Loss& loss, Error& error) const;
  void look_for_last();

  const MemberNames& members_;
  const RankView& rank_;
  // By world rank.
  std::map<int, Member> others_;
  std::optional<Error> failure_;
  Stage stage_ = Stage::kMaking;
  bool closing_ = false, goes_on_ = false;
  bool heard_all_ = false;      // closing, and so are all others
  std::map<int, Loss> losses_;  // not yet reported
  Time losses_due_ = 0;
  // At most one for each peer.
  std::vector<Suspicion> suspicions_;
  std::set<int> streamed_;           // members whose stream has come
  std::map<int, Time> streams_due_;  // members that have left, but for PeerLeft: their stream has not come
  size_t goodbyes_ = 0;
};

}  // namespace rondo
