#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rondo/error.h"
#include "transport/control/control_action.h"
#include "transport/control/control_settings.h"
#include "transport/control/mesh_map.h"

namespace rondo {

// How a rank was lost: kPeerLost or kUnresponsive.
struct Loss {
  std::string why;
  ErrorCode code = ErrorCode::kPeerLost;
};
// One error for all losses: kPeerLost if one of the ranks has died, else kUnresponsive. died: what is said of a death,
// "died".
Error loss_error(const std::map<int, Loss>& losses, const char* died, const std::function<std::string(int)>& name);

// Which ranks of the job have died, left, given up or can no longer be reached, as one rank knows. A state machine
// without clock, socket or thread; part of ControlLogic, which owns settings and actions. Not thread safe.
//
// A rank departs once: of lost, left and resigned the first counts. Nothing is taken back, so a rank that was given up
// and goes on is not heard any more.
class Departures {
 public:
  // Milliseconds of a clock that never goes back.
  using Time = int64_t;
  // What the communicators have to be told.
  struct News {
    enum class Kind {
      kLost,         // lost()
      kLeft,         // left()
      kResigned,     // resigned()
      kStartFailed,  // of no rank in particular: start_failure()
      kGivenUp,      // by that neighbor: given_up()
    };
    Kind kind = Kind::kLost;
    int peer = -1;
  };

  Departures(const ControlSettings& settings, control::Actions& actions);

  // The connection to a neighbor ended without a LEAVE: it has died, unless it had given this rank up before.
  void connection_ended(Time now, int peer, const std::string& why);
  // From a neighbor: a connection of others has ended, or a rank of the job has died or left. What is news goes on to
  // the other neighbors.
  void receive(Time now, int from, const LostMessage& message);
  void receive(Time now, int from, const LeaveMessage& message);
  // The start of `from` failed after this rank's own was done.
  void start_failed(int from, const Error& error);
  // `by`, whose start goes on, finds nothing that listens at `peer` (StartLogic::unreached).
  void unreached(int peer, int by, const std::string& why);
  // Nothing has come from it for the suspicion.
  void give_up(Time now, int peer);
  // No data reached it, though it lives: from the second time on shrink() parts the two. A firewall may have forgotten
  // a connection once.
  void way_failed(int peer);
  void ended(int peer) { ended_.insert(peer); }  // proven: its process is no more
  // Looks who can still be reached, once look_ms have passed since the first ended connection that was reported.
  void tick(Time now);
  // Since the last call, in order.
  std::vector<News> take_news() { return std::exchange(news_, {}); }

  // --- questions
  std::optional<Time> next_time() const;
  bool gone(int peer) const;  // lost, left, or its start failed
  bool anyone_lost() const { return !lost_.empty() || start_failure_; }
  // Why no communicator will come about, before any is open: the ranks that died, or another rank's failed start.
  std::optional<Error> start_failure() const;
  const std::optional<Error>& failed_start() const { return start_failure_; }  // where nobody died
  const std::map<int, Loss>& lost() const { return lost_; }
  const std::set<int>& left() const { return left_; }
  const std::map<int, std::string>& resigned() const { return resigned_; }  // why
  bool has_ended(int peer) const { return ended_.count(peer) != 0; }
  bool parted(int peer) const { return parted_.count(peer) != 0; }
  bool given_up_by(int peer) const { return given_up_by_.count(peer) != 0; }
  const std::string& given_up() const { return given_up_; }  // "": by nobody
  // Grows with whatever a membership has to be told.
  size_t count() const;

 private:
  // lose() and leave() record the departure, and say it to the mesh (Gone) and to the communicators (News).
  void lose(int peer, const Loss& loss);
  void leave(int peer);
  void cut_off(Time now, int peer, LostMessage::Fate fate, const std::string& why);
  bool note_cut(Time now, int one, int other);
  void fail_start(const Error& error);
  void tell_neighbors(int except, const LostMessage& message);

  const ControlSettings& settings_;
  control::Actions& actions_;
  std::vector<News> news_;
  std::map<int, Loss> lost_;
  // Used where not every pair of ranks is connected: all connections of the job that are not known to have ended.
  MeshMap map_;
  Time look_due_ = -1;            // who can still be reached; -1: no connection was lost since the last look
  std::map<int, Loss> reported_;  // by others, of ranks that may still be reached
  std::set<int> left_;
  std::set<int> once_failed_, parted_;   // way_failed(): once, and again over a new connection
  std::set<int> ended_;                  // of those that are lost: proven
  std::map<int, std::string> resigned_;  // their start failed, and not because they died: why
  std::optional<Error> start_failure_;   // that of the first of them, where nobody died; or this rank's own
  std::set<int> given_up_by_;            // neighbors that have given this rank up; others may hear it
  std::string given_up_;                 // why the first of them has
};

}  // namespace rondo
