#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rondo/error.h"
#include "transport/control/blame.h"
#include "transport/control/control_message.h"

namespace rondo {

// The start of one rank's control plane as a state machine: who is connected, and who is to blame when the start fails.
// No clock, socket or thread inside. Not thread safe.
//
// A rank whose start fails says so, with the culprits, to everybody: to those that it is connected to at once, to the
// others as soon as they are. So it keeps listening and dialing until untold() is empty; closing earlier would look to
// them like a death of its own.
class StartLogic {
 public:
  using Time = int64_t;  // milliseconds of a clock that never goes back
  // kDone: all neighbors are connected, and no loss waits for its grace. kFailed is final, and error() says why.
  enum class Phase { kRunning, kDone, kFailed };

  struct Settings {
    int rank = 0;
    std::vector<std::string> names;  // by rank: "host b, pid 17"
    std::vector<int> neighbors;      // ranks that must be connected to this one
    // An ended connection waits this long for a better reason than a death, from those that know it, as a failed data
    // link does (ControlLogic). Deaths within it are reported together.
    Time grace_ms = 100;
    // For the others to say that a rank lives at which nothing listens for this one: a round trip, on busy cores.
    Time answer_ms = 200;
  };
  explicit StartLogic(Settings settings);

  // Its control connection is made. After a failure it is told the error.
  void connected(int peer);
  // Its connection ended.
  void lost(Time now, int peer, const std::string& why);
  // Nothing listens where it said that it would, for as long as a death takes to be seen by those connected to it
  // (dial.cc): they are asked first whether it lives, since a firewall may refuse in its place.
  void unreached(Time now, int peer, const std::string& why);
  // That is asked by another rank, `by`.
  void asked(int peer, int by, const std::string& why);
  // Its start failed; so does this one, for the same reason.
  void gave_up(int peer, const Error& error);
  // It was past its start and failed then: what the end of its connection will mean.
  void failed_later(int peer, const Error& error);
  // This rank cannot go on.
  void fail(const Error& error);
  // It was done, but what comes after the connections failed (the island, the goodbye to the store).
  void fail_after(const Error& error);
  void tick(Time now);

  // Messages to connected ranks since the last call: questions about a rank (kUnreached: asked() there), and, after a
  // failure, error(), once to each.
  std::vector<std::pair<int, ControlBody>> take_messages() { return std::exchange(messages_, {}); }
  // When tick() is due; nullopt: nothing waits.
  std::optional<Time> next_time() const;

  // --- questions
  Phase phase() const { return phase_; }
  const Error& error() const { return error_; }
  const std::set<int>& missing() const { return missing_; }  // not connected yet
  // After a failure: ranks that may still take this one's silence for a death.
  std::set<int> untold() const;

 private:
  std::string name(int peer) const { return rank_name(peer, settings_.names); }
  void check_done();
  void tell_error(int peer) { messages_.emplace_back(peer, AbortMessage{0, Stage::kMaking, error_}); }

  Settings settings_;
  Phase phase_ = Phase::kRunning;
  Error error_;
  // Neighbors, in one of the two at most: not connected yet; connected. A rank that is lost is in neither.
  std::set<int> missing_, live_;
  std::map<int, std::string> losses_;  // while running: who, and why
  Time losses_due_ = 0;
  struct Unreached {
    std::string why;
    Time due = 0;  // when it is taken for dead
  };
  // Ranks of missing_ at which nothing listens for this one, while the connected ranks are asked. Empty once the start
  // is over.
  std::map<int, Unreached> unreached_;
  // Why ranks whose start was done have failed since, as they said before their connections ended.
  std::map<int, Error> later_;
  std::vector<std::pair<int, ControlBody>> messages_;
};

// Whom a failed start of `peer` with this error blames, in the eyes of `rank`: the ranks that it names, or, where it
// names none but `rank` itself, `peer`.
std::vector<int> start_culprits(int rank, int peer, const Error& error);
// That error as `rank` reports it, blaming those.
Error heard_start_error(int rank, int peer, const std::string& peer_name, const Error& error);

// What to do about two ranks that do not reach each other.
inline constexpr const char* kReachAdvice =
    "every rank must be able to connect to every other: does a firewall stand between the two, or is an address wrong "
    "(RONDO_PORT_RANGE limits the ports, RONDO_SOCKET_IFNAME chooses the interfaces)?";
// One rank lives, and another finds nothing that listens there. Both with their names; witness: is connected to it.
struct Parted {
  int peer = -1, by = -1, witness = -1;
  std::string peer_name, by_name;
  std::string why;
};
Error parted_error(const Parted& parted);

}  // namespace rondo
