#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "transport/control/control_logic.h"

namespace rondo::testing {

inline constexpr uint64_t kId = 42;
inline constexpr int64_t kMaxDelay = 30;  // milliseconds, for a message

// Each rank is connected to those at distances that are powers of two, as in worlds beyond 64.
inline std::vector<int> circle_neighbors_of(int rank, int world) {
  std::set<int> set;
  for (int distance = 1; distance < world; distance *= 2) {
    set.insert((rank + distance) % world);
    set.insert((rank + world - distance) % world);
  }
  return {set.begin(), set.end()};
}
inline std::vector<std::vector<int>> circle_neighbors(int world) {
  std::vector<std::vector<int>> neighbors;
  for (int rank = 0; rank < world; ++rank) neighbors.push_back(circle_neighbors_of(rank, world));
  return neighbors;
}

inline bool failed(const ControlLogic& logic, uint64_t communicator) {
  const auto* open = logic.find(communicator);
  return open != nullptr && open->life.failure();
}

// Control planes of all ranks in one thread and a made-up time. Messages of one pair stay in order and take a random
// time; a rank that dies is noticed by its neighbors after what it had sent before.
class Simulation {
 public:
  Simulation(int world, uint32_t seed, const std::vector<std::vector<int>>& neighbors = {},
             const ControlSettings& more = {})
      : random_(seed) {
    for (int rank = 0; rank < world; ++rank) {
      ControlSettings settings = more;
      settings.rank = rank;
      for (int other = 0; other < world; ++other) {
        settings.names.push_back(fmt::format("host h, pid {}", 100 + other));
        if (neighbors.empty() && other != rank) settings.neighbors.push_back(other);
      }
      if (!neighbors.empty()) {
        settings.neighbors = neighbors[static_cast<size_t>(rank)];
        settings.neighbors_of = circle_neighbors_of;
      }
      neighbors_.push_back(settings.neighbors);
      ranks_.push_back(std::make_unique<ControlLogic>(settings));
      calls_.emplace_back();
    }
    for (int rank = 0; rank < world; ++rank) {
      for (const int peer : neighbors_[static_cast<size_t>(rank)]) logic(rank).liveness().watch(0, peer);
    }
    due_.assign(static_cast<size_t>(world), kNever);
    for (int rank = 0; rank < world; ++rank) note_timer(rank);
    failures.resize(static_cast<size_t>(world));
    notes.resize(static_cast<size_t>(world));
    failed_at.resize(static_cast<size_t>(world), -1);
    left.resize(static_cast<size_t>(world));
  }

  int world() const { return static_cast<int>(ranks_.size()); }
  ControlLogic& logic(int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  CallState& call(int rank) { return calls_[static_cast<size_t>(rank)]; }
  int64_t now() const { return now_; }
  bool alive(int rank) const { return dead_.count(rank) == 0; }
  int events() const { return events_; }

  // What a rank does at a time.
  void at(int64_t time, int rank, std::function<void(ControlLogic&)> act) {
    queue_.emplace(std::pair(time, order_++), Event{rank, std::move(act)});
  }
  void open_everywhere(std::vector<int> members) {
    for (int rank : members) {
      at(delay(), rank, [this, members](ControlLogic& logic) { logic.open(now_, kId, members); });
    }
  }
  void stall(int rank, uint64_t sequence) {
    logic(rank).stalled(now_, kId, sequence, call(rank));
    collect(rank);
  }
  // What a program does: its process says goodbye and ends once its communicator is closed.
  void leave_when_all_left(int rank, int64_t time) {
    at(time, rank, [this, rank](ControlLogic& logic) {
      if (!logic.all_left(kId)) return leave_when_all_left(rank, now_ + 5);
      logic.leave();
      collect(rank);
      ended_.insert(rank);
      for (int peer : neighbors_[static_cast<size_t>(rank)]) end_connection(rank, peer, "the connection was closed");
    });
  }
  // What a program does that goes on: it looks every few milliseconds whether the communicator has failed, and shrinks.
  void shrink_when_failed(int rank, int64_t time, int64_t patience, int64_t every = 7) {
    at(time, rank, [=, this](ControlLogic& logic) {
      if (!failed(logic, kId)) return shrink_when_failed(rank, now_ + every, patience, every);
      logic.shrink(now_, kId, patience, false);
    });
  }
  // Ends the process: nothing of it runs any more, and its connections end after what it sent.
  void crash(int rank) {
    if (!dead_.insert(rank).second) return;
    note_timer(rank);
    for (int peer : neighbors_[static_cast<size_t>(rank)]) end_connection(rank, peer, "the connection was closed");
  }
  // SIGSTOP: what comes for it waits until it goes on.
  void stop(int rank) {
    stopped_.insert(rank);
    note_timer(rank);
  }
  void go_on(int rank) {
    if (stopped_.erase(rank) == 0) return;
    note_timer(rank);
    for (Event& event : std::exchange(held_[rank], {})) queue_.emplace(std::pair(now_, order_++), std::move(event));
  }
  bool awake(int rank) const { return alive(rank) && stopped_.count(rank) == 0; }
  // The connection between two living ranks breaks.
  void cut(int one, int other) {
    end_connection(one, other, "connection timed out");
    end_connection(other, one, "connection timed out");
    cut_.insert({one, other});
    cut_.insert({other, one});
  }

  // What `from` says does not arrive any more, and nobody is told.
  void silence(int from, int to) { cut_.insert({from, to}); }

  // `before` runs before each event, with its index. Ends when nothing waits any more.
  void run(
      const std::function<void(int)>& before = [](int) {}, int64_t until = 1'000'000) {
    for (int rank = 0; rank < world(); ++rank) note_timer(rank);  // for what a test has asked of it
    while (true) {
      before(events_++);
      const auto timer = next_timer();
      const auto next = queue_.begin();
      const int64_t due = std::min(timer, next == queue_.end() ? kNever : next->first.first);
      if (due >= until) return;
      now_ = std::max(now_, due);
      if (timer <= due) {
        tick();
        continue;
      }
      Event event = std::move(next->second);
      queue_.erase(next);
      if (!alive(event.rank) || ended_.count(event.rank)) continue;
      if (!awake(event.rank)) {
        held_[event.rank].push_back(std::move(event));
        continue;
      }
      event.act(logic(event.rank));
      collect(event.rank);
    }
  }

  std::vector<std::optional<Error>> failures;
  int extended = 0;                             // failures that went on to name another death
  std::vector<std::map<int, uint64_t>> left;    // by rank: who, and the last sequence
  std::vector<std::vector<std::string>> notes;  // by rank
  std::vector<int64_t> failed_at;               // by rank; -1: it has not

 private:
  static constexpr int64_t kNever = INT64_MAX;
  struct Event {
    int rank = -1;
    std::function<void(ControlLogic&)> act;
  };

  int64_t delay() { return static_cast<int64_t>(random_() % static_cast<uint32_t>(kMaxDelay)); }

  int64_t next_timer() const { return timers_.empty() ? kNever : timers_.begin()->first; }

  // After whatever may have changed when it is due.
  void note_timer(int rank) {
    int64_t& known = due_[static_cast<size_t>(rank)];
    const int64_t due = awake(rank) ? logic(rank).next_time().value_or(kNever) : kNever;
    if (known != kNever) timers_.erase({known, rank});
    if (due != kNever) timers_.insert({due, rank});
    known = due;
  }

  void tick() {
    std::vector<int> due;
    for (const auto& [time, rank] : timers_) {
      if (time > now_) break;
      due.push_back(rank);
    }
    for (const int rank : due) {
      logic(rank).tick(now_);
      collect(rank);
    }
  }

  int64_t arrival(int from, int to) {
    int64_t& last = last_arrival_[{from, to}];
    return last = std::max(last, now_ + delay());
  }

  void end_connection(int from, int to, const std::string& why) {
    at(arrival(from, to), to, [this, from, why](ControlLogic& logic) { logic.connection_ended(now_, from, why); });
  }

  void collect(int rank) {
    take_actions(rank);
    note_timer(rank);
  }

  void take_actions(int rank) {
    for (control::Action& action : logic(rank).take_actions()) {
      if (auto* send = std::get_if<control::Send>(&action)) {
        deliver(rank, send->peer, send->body);
      } else if (auto* fail = std::get_if<control::Fail>(&action)) {
        if (fail->communicator == kId) take_failure(rank, fail->error);
      } else if (auto* gone = std::get_if<control::PeerLeft>(&action)) {
        CHECK(left[static_cast<size_t>(rank)].emplace(gone->peer, gone->last_sequence).second);
      } else if (auto* note = std::get_if<control::Note>(&action)) {
        notes[static_cast<size_t>(rank)].push_back(note->text);
      } else if (auto* dropped = std::get_if<control::Drop>(&action)) {
        end_connection(rank, dropped->peer, "the connection was closed");
      }
    }
  }

  // Once, and again only for another death.
  void take_failure(int rank, const Error& error) {
    std::optional<Error>& known = failures[static_cast<size_t>(rank)];
    if (!known) failed_at[static_cast<size_t>(rank)] = now_;
    if (known) {
      CHECK((known->code == ErrorCode::kPeerLost || known->code == ErrorCode::kUnresponsive));
      CHECK(known->code == error.code);
      CHECK(error.ranks.size() == known->ranks.size() + 1);
      CHECK(std::equal(known->ranks.begin(), known->ranks.end(), error.ranks.begin()));
      CHECK(error.message.find(known->message) == 0);
      ++extended;
    }
    known = error;
  }

  bool connected(int from, int to) const {
    const std::vector<int>& neighbors = neighbors_[static_cast<size_t>(from)];
    return std::find(neighbors.begin(), neighbors.end(), to) != neighbors.end();
  }
  int distance(int one, int other) const {
    const int forward = (other - one + world()) % world();
    return std::min(forward, world() - forward);
  }
  // Like ControlMesh: from rank to rank, each nearer; lost with a process that has ended meanwhile.
  void deliver(int from, int to, const ControlBody& body) { forward(from, from, to, body); }
  void forward(int here, int from, int to, const ControlBody& body) {
    int next = connected(here, to) ? to : here;
    if (next == here) {
      for (const int peer : neighbors_[static_cast<size_t>(here)]) {
        if (ended_.count(peer) == 0 && alive(peer) && distance(peer, to) < distance(next, to)) next = peer;
      }
    }
    if (next == here) return;
    if (next == to) return arrive(here, from, to, body);
    at(arrival(here, next), next, [this, next, from, to, body](ControlLogic&) { forward(next, from, to, body); });
  }
  void arrive(int last_hop, int from, int to, const ControlBody& body) {
    if (cut_.count({last_hop, to})) return;
    at(arrival(last_hop, to), to, [this, from, to, body](ControlLogic& logic) {
      logic.liveness().heard(now_, from);
      if (const auto* question = std::get_if<QueryMessage>(&body)) {
        logic.query(from, *question, call(to));
      } else {
        logic.receive(now_, from, body);
      }
    });
  }

  std::mt19937 random_;
  std::vector<std::unique_ptr<ControlLogic>> ranks_;
  std::vector<std::vector<int>> neighbors_;
  std::vector<CallState> calls_;
  std::set<int> dead_, stopped_, ended_;    // ended_: in good order
  std::map<int, std::vector<Event>> held_;  // of ranks that are stopped
  std::set<std::pair<int, int>> cut_;
  std::map<std::pair<int64_t, uint64_t>, Event> queue_;
  std::set<std::pair<int64_t, int>> timers_;  // when a rank's is due
  std::vector<int64_t> due_;                  // the same, by rank
  std::map<std::pair<int, int>, int64_t> last_arrival_;
  uint64_t order_ = 0;
  int64_t now_ = 0;
  int events_ = 0;
};

inline std::vector<int> all_ranks(int world) {
  std::vector<int> ranks(static_cast<size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// The same where every rank has opened the communicator of all, and all is quiet.
class OpenSimulation : public Simulation {
 public:
  OpenSimulation(int world, uint32_t seed, const std::vector<std::vector<int>>& neighbors = {})
      : Simulation(world, seed, neighbors) {
    open_everywhere(all_ranks(world));
    run();
  }
};

}  // namespace rondo::testing
