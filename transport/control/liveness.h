#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace rondo {

// Which of the ranks that it watches have gone silent, as a state machine: time comes in with the events. Part of
// ControlLogic. Not thread safe.
//
// A rank that was stopped itself finds its own beat late by more than a heartbeat. It has not heard the others because
// it did not listen: all its clocks start anew, and it accuses nobody. Beats that are less late stretch the silence of
// the others by as much: on a host with more ranks than it can run all are as late as this one.
class Liveness {
 public:
  using Time = int64_t;  // milliseconds of a clock that never goes back
  struct Settings {
    Time heartbeat_ms = 0;  // between two signs of life; 0: nobody is watched
    Time suspicion_ms = 0;  // a silence so long is an end; 0: none is. Else at least three heartbeats
  };
  // Silence that is worth a warning: two beats that have not come, where one may just be late.
  static constexpr Time kWarnHeartbeats = 2;
  // Between two warnings: on a host with more ranks than it can run many are silent now and then.
  static constexpr Time kWarnPauseMs = 10'000;

  explicit Liveness(const Settings& settings) : settings_(settings) {}

  // Its control connection was made.
  void watch(Time now, int peer);
  // Its connection has ended, or it is given up.
  void forget(int peer) { watched_.erase(peer); }
  void forget_all() { watched_.clear(); }
  // Anything has come from it, not ALIVE alone.
  void heard(Time now, int peer);

  struct Silent {
    int peer = -1;
    Time ms = 0;
  };
  struct Findings {
    bool beat = false;                 // all that are watched have to be sent a sign of life
    Time stopped_ms = 0;               // not 0: this rank itself stood still for about so long
    std::vector<Silent> silent;        // for two heartbeats, when a warning is due; said once
    std::vector<Silent> back;          // were silent for so long, and have spoken
    std::vector<Silent> unresponsive;  // for suspicion_ms; not watched any more
  };
  // What is new since the last call: each silence, return and end is in one of the results once.
  Findings tick(Time now);

  // --- questions
  // When tick() is due; nullopt: nobody is watched.
  std::optional<Time> next_time() const;
  // For how long nothing has come from a rank; 0: it is not watched.
  Time silence(Time now, int peer) const;

 private:
  struct Peer {
    Time heard_at = 0;
    bool warned = false;
    Time was_silent_ms = 0;  // not 0: it has spoken again, which is to be said
  };
  Time warn_ms() const { return kWarnHeartbeats * settings_.heartbeat_ms; }
  Time beat(Time now);

  Settings settings_;
  // By rank: the neighbors that are connected.
  std::map<int, Peer> watched_;
  Time next_beat_ = 0, next_warning_ = 0;
};

}  // namespace rondo
