#include "transport/control_logic.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>

namespace rondo {
namespace {

constexpr uint64_t kId = 42;
constexpr int64_t kMaxDelay = 30;  // milliseconds, for a message

// Control planes of all ranks in one thread and a made-up time. Messages of one pair stay in order and take a random
// time; a rank that dies is noticed by its neighbors after what it had sent before.
class Simulation {
 public:
  Simulation(int world, uint32_t seed, const std::vector<std::vector<int>>& neighbors = {},
             const ControlLogic::Settings& more = {})
      : random_(seed) {
    for (int rank = 0; rank < world; ++rank) {
      ControlLogic::Settings settings = more;
      settings.rank = rank;
      for (int other = 0; other < world; ++other) {
        settings.names.push_back(fmt::format("host h, pid {}", 100 + other));
        if (neighbors.empty() && other != rank) settings.neighbors.push_back(other);
      }
      if (!neighbors.empty()) settings.neighbors = neighbors[static_cast<size_t>(rank)];
      neighbors_.push_back(settings.neighbors);
      ranks_.push_back(std::make_unique<ControlLogic>(settings));
      calls_.emplace_back();
    }
    for (int rank = 0; rank < world; ++rank) {
      for (const int peer : neighbors_[static_cast<size_t>(rank)]) logic(rank).connected(0, peer);
    }
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
  // As a program does: its process says goodbye and ends once its communicator is closed.
  void leave_when_all_left(int rank, int64_t time) {
    at(time, rank, [this, rank](ControlLogic& logic) {
      if (!logic.all_left(kId)) return leave_when_all_left(rank, now_ + 5);
      logic.leave();
      collect(rank);
      for (int peer : neighbors_[static_cast<size_t>(rank)]) end_connection(rank, peer, "the connection was closed");
    });
  }
  // Ends the process: nothing of it runs any more, and its connections end after what it sent.
  void crash(int rank) {
    if (!dead_.insert(rank).second) return;
    for (int peer : neighbors_[static_cast<size_t>(rank)]) end_connection(rank, peer, "the connection was closed");
  }
  // SIGSTOP: what comes for it waits until it goes on.
  void stop(int rank) { stopped_.insert(rank); }
  void go_on(int rank) {
    if (stopped_.erase(rank) == 0) return;
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

  // `before` runs before each event, with its index. Ends when nothing waits any more.
  void run(
      const std::function<void(int)>& before = [](int) {}, int64_t until = 1'000'000) {
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
      if (!alive(event.rank)) continue;
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

  int64_t next_timer() const {
    int64_t due = kNever;
    for (int rank = 0; rank < world(); ++rank) {
      if (awake(rank)) due = std::min(due, ranks_[static_cast<size_t>(rank)]->next_time().value_or(kNever));
    }
    return due;
  }

  void tick() {
    for (int rank = 0; rank < world(); ++rank) {
      if (!awake(rank)) continue;
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
    for (ControlLogic::Action& action : logic(rank).take_actions()) {
      if (auto* send = std::get_if<ControlLogic::Send>(&action)) {
        deliver(rank, send->peer, send->body);
      } else if (auto* fail = std::get_if<ControlLogic::Fail>(&action)) {
        take_failure(rank, fail->error);
      } else if (auto* gone = std::get_if<ControlLogic::PeerLeft>(&action)) {
        CHECK(left[static_cast<size_t>(rank)].emplace(gone->peer, gone->last_sequence).second);
      } else if (auto* note = std::get_if<ControlLogic::Note>(&action)) {
        notes[static_cast<size_t>(rank)].push_back(note->text);
      } else if (auto* dropped = std::get_if<ControlLogic::Drop>(&action)) {
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

  void deliver(int from, int to, const ControlBody& body) {
    if (cut_.count({from, to})) return;
    at(arrival(from, to), to, [this, from, to, body](ControlLogic& logic) {
      logic.heard(now_, from);
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
  std::set<int> dead_, stopped_;
  std::map<int, std::vector<Event>> held_;  // of ranks that are stopped
  std::set<std::pair<int, int>> cut_;
  std::map<std::pair<int64_t, uint64_t>, Event> queue_;
  std::map<std::pair<int, int>, int64_t> last_arrival_;
  uint64_t order_ = 0;
  int64_t now_ = 0;
  int events_ = 0;
};

std::vector<int> all_ranks(int world) {
  std::vector<int> ranks(static_cast<size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Every survivor failed with PEER_LOST, blaming the dead only.
void expect_loss_everywhere(const Simulation& simulation, const std::set<int>& dead) {
  for (int rank = 0; rank < simulation.world(); ++rank) {
    if (dead.count(rank)) continue;
    CAPTURE(rank);
    const auto& failure = simulation.failures[static_cast<size_t>(rank)];
    REQUIRE(failure);
    CHECK(failure->code == ErrorCode::kPeerLost);
    CHECK(!failure->ranks.empty());
    for (int culprit : failure->ranks) {
      CHECK(dead.count(culprit) == 1);
      CHECK(failure->message.find(fmt::format("rank {} (host h, pid {})", culprit, 100 + culprit)) !=
            std::string::npos);
    }
  }
}

TEST_CASE("a crash at every event index: all survivors fail alike, blaming the dead only") {
  for (int world = 2; world <= 8; ++world) {
    for (uint32_t seed = 0; seed < 3; ++seed) {
      for (int index = 0; index < 2 * world; ++index) {
        CAPTURE(world);
        CAPTURE(seed);
        CAPTURE(index);
        Simulation simulation(world, seed);
        simulation.open_everywhere(all_ranks(world));
        const int victim = static_cast<int>((seed + static_cast<uint32_t>(index)) % static_cast<uint32_t>(world));
        simulation.run([&](int event) {
          if (event == index) simulation.crash(victim);
        });
        simulation.crash(victim);  // where all was quiet before that index
        simulation.run();
        expect_loss_everywhere(simulation, {victim});
      }
    }
  }
}

TEST_CASE("two crashes: blame stays with the dead, and both are named, at once where they come close together") {
  int both = 0, one_by_one = 0;
  for (int world = 3; world <= 8; ++world) {
    for (uint32_t seed = 0; seed < 10; ++seed) {
      CAPTURE(world);
      CAPTURE(seed);
      Simulation simulation(world, seed);
      simulation.open_everywhere(all_ranks(world));
      simulation.run();
      simulation.crash(0);
      simulation.crash(world - 1);
      simulation.run();
      expect_loss_everywhere(simulation, {0, world - 1});
      for (int rank = 1; rank < world - 1; ++rank) {
        both += simulation.failures[static_cast<size_t>(rank)]->ranks.size() == 2;
      }
      one_by_one += simulation.extended;
    }
  }
  const int survivors = 10 * (1 + 2 + 3 + 4 + 5 + 6);
  CHECK(both == survivors);
  // Deaths are seen up to 30 ms apart here, and collected for 20.
  CHECK(one_by_one > 0);
  CHECK(one_by_one < survivors - 100);
}

TEST_CASE("a death long after another is added to the loss, but to no failure of another kind") {
  Simulation lost(4, 1);
  lost.open_everywhere(all_ranks(4));
  lost.run();
  lost.crash(3);
  lost.run();
  lost.crash(1);
  lost.run();
  for (const int rank : {0, 2}) {
    CHECK(lost.failures[static_cast<size_t>(rank)]->ranks == std::vector<int>{3, 1});
    CHECK(lost.failures[static_cast<size_t>(rank)]->message.find("; rank 1 (host h, pid 101) died too: ") !=
          std::string::npos);
  }

  Simulation aborted(3, 1);
  aborted.open_everywhere(all_ranks(3));
  aborted.run();
  aborted.at(aborted.now(), 0, [&](ControlLogic& logic) {
    logic.abort(aborted.now(), kId, {ErrorCode::kAborted, "rank 0 aborted the group", {0}});
  });
  aborted.run();
  aborted.crash(1);
  aborted.run();
  for (const int rank : {0, 2}) CHECK(aborted.failures[static_cast<size_t>(rank)]->code == ErrorCode::kAborted);
}

TEST_CASE("a cut between two living ranks: all fail alike, blaming one of the two") {
  for (int world = 2; world <= 8; ++world) {
    for (uint32_t seed = 0; seed < 10; ++seed) {
      CAPTURE(world);
      CAPTURE(seed);
      Simulation simulation(world, seed);
      simulation.open_everywhere(all_ranks(world));
      simulation.run();
      simulation.cut(0, 1);
      simulation.run();
      for (const auto& failure : simulation.failures) {
        REQUIRE(failure);
        CHECK(failure->code == ErrorCode::kPeerLost);
        for (int culprit : failure->ranks) CHECK(culprit <= 1);
      }
    }
  }
}

TEST_CASE("goodbyes at any moment, in any order, are never a failure, and nobody waits for ever") {
  for (int world = 2; world <= 8; ++world) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      CAPTURE(world);
      CAPTURE(seed);
      std::mt19937 random(seed);
      Simulation simulation(world, seed);
      simulation.open_everywhere(all_ranks(world));
      for (int rank = 0; rank < world; ++rank) {
        const auto time = static_cast<int64_t>(kMaxDelay + random() % 100);
        simulation.at(time, rank, [&simulation, rank](ControlLogic& logic) {
          logic.close(simulation.now(), kId, static_cast<uint64_t>(rank) + 5);
        });
        simulation.leave_when_all_left(rank, time);
      }
      simulation.run();
      for (int rank = 0; rank < world; ++rank) {
        CHECK(!simulation.failures[static_cast<size_t>(rank)]);
        CHECK(simulation.logic(rank).all_left(kId));
        CHECK(simulation.left[static_cast<size_t>(rank)].size() == static_cast<size_t>(world - 1));
        for (const auto& [peer, last] : simulation.left[static_cast<size_t>(rank)]) {
          CHECK(last == static_cast<uint64_t>(peer) + 5);
        }
      }
    }
  }
}

TEST_CASE("a crash while others close leaves no close waiting, and blames nobody alive") {
  for (int world = 2; world <= 8; ++world) {
    for (int index = 0; index < 4 * world; ++index) {
      CAPTURE(world);
      CAPTURE(index);
      Simulation simulation(world, static_cast<uint32_t>(index));
      simulation.open_everywhere(all_ranks(world));
      for (int rank = 0; rank < world; ++rank) {
        simulation.at(50 + rank * 5, rank,
                      [&simulation](ControlLogic& logic) { logic.close(simulation.now(), kId, 1); });
      }
      const int victim = index % world;
      simulation.run([&](int event) {
        if (event == index) simulation.crash(victim);
      });
      for (int rank = 0; rank < world; ++rank) {
        if (!simulation.alive(rank)) continue;
        CHECK(simulation.logic(rank).all_left(kId));
        const auto& failure = simulation.failures[static_cast<size_t>(rank)];
        if (failure) CHECK(failure->ranks == std::vector<int>{victim});
      }
    }
  }
}

TEST_CASE("a failed data link waits for the better reason: the death of the peer's peer, or its goodbye") {
  Simulation simulation(3, 1);
  simulation.open_everywhere(all_ranks(3));
  simulation.run();
  // Rank 1 aborted because rank 2 died, and closed its links; rank 0 sees that first.
  simulation.logic(0).link_failed(simulation.now(), kId, 1, {ErrorCode::kPeerLost, "closed", {}});
  simulation.crash(2);
  simulation.run();
  CHECK(simulation.failures[0]->ranks == std::vector<int>{2});

  Simulation orderly(2, 1);
  orderly.open_everywhere(all_ranks(2));
  orderly.run();
  orderly.logic(0).link_failed(orderly.now(), kId, 1, {ErrorCode::kPeerLost, "closed", {}});
  orderly.at(orderly.now() + 50, 1, [&](ControlLogic& logic) { logic.close(orderly.now(), kId, 3); });
  orderly.run();
  CHECK(!orderly.failures[0]);
  CHECK(orderly.left[0] == std::map<int, uint64_t>{{1, 3}});
}

TEST_CASE("fault 20: a link that is corrupt for one end, and closed for the other, is corrupt for both") {
  Simulation simulation(2, 1);
  simulation.open_everywhere(all_ranks(2));
  simulation.run();
  simulation.logic(0).link_failed(simulation.now(), kId, 1, {ErrorCode::kPeerLost, "closed", {}});
  simulation.logic(1).link_failed(simulation.now(), kId, 0, {ErrorCode::kCorrupt, "its bytes arrived damaged", {}});
  simulation.run();
  for (const int rank : {0, 1}) {
    REQUIRE(simulation.failures[static_cast<size_t>(rank)]);
    CHECK(simulation.failures[static_cast<size_t>(rank)]->code == ErrorCode::kCorrupt);
  }
}

CallState calling(uint64_t sequence, uint64_t fingerprint, const std::string& text) {
  CallState state;
  state.current = sequence;
  state.fingerprint = fingerprint;
  state.text = text;
  return state;
}

TEST_CASE("different calls at one sequence are a mismatch on every rank, whichever asks, with both in the text") {
  for (int world = 2; world <= 8; ++world) {
    for (int asker = 0; asker < world; ++asker) {
      CAPTURE(world);
      CAPTURE(asker);
      Simulation simulation(world, static_cast<uint32_t>(asker));
      simulation.open_everywhere(all_ranks(world));
      simulation.run();
      for (int rank = 0; rank < world; ++rank) {
        simulation.call(rank) = rank == world - 1 ? calling(3, 2, "reduce(root=1)") : calling(3, 1, "reduce(root=0)");
      }
      simulation.stall(asker, 3);
      simulation.run();
      CHECK(simulation.now() <= 4 * kMaxDelay + 2 * kMaxDelay);
      for (const auto& failure : simulation.failures) {
        REQUIRE(failure);
        CHECK(failure->code == ErrorCode::kMismatch);
        CHECK(failure->message.find("called reduce(root=0)") != std::string::npos);
        CHECK(failure->message.find("called reduce(root=1)") != std::string::npos);
        CHECK(failure->ranks.back() == world - 1);
      }
    }
  }
}

TEST_CASE("equal calls by different routes are a mismatch on every rank; one that has not been decided is none") {
  const auto route = [](Algorithm algorithm, uint64_t table) { return static_cast<uint64_t>(algorithm) << 32 | table; };
  for (const uint64_t other : {route(Algorithm::kPull, 1), route(Algorithm::kStaged, 2), uint64_t{0}}) {
    CAPTURE(other);
    Simulation simulation(3, 5);
    simulation.open_everywhere(all_ranks(3));
    simulation.run();
    for (int rank = 0; rank < 3; ++rank) {
      simulation.call(rank) = calling(3, 1, "all_reduce(count=8)");
      simulation.call(rank).route = rank == 1 ? other : route(Algorithm::kStaged, 1);
    }
    simulation.stall(0, 3);
    simulation.run();
    for (const auto& failure : simulation.failures) {
      REQUIRE(failure.has_value() == (other != 0));
      if (!failure) continue;
      CHECK(failure->code == ErrorCode::kMismatch);
      CHECK(failure->message.find("takes another route for it") != std::string::npos);
      CHECK(failure->message.find("staged, table 00000001") != std::string::npos);
    }
  }
}

TEST_CASE("equal calls, slow ranks and unknown old calls are no mismatch") {
  Simulation simulation(4, 7);
  simulation.open_everywhere(all_ranks(4));
  simulation.run();
  simulation.call(0) = calling(5, 1, "barrier()");
  simulation.call(1) = calling(5, 1, "barrier()");
  simulation.call(2) = calling(4, 0, "");
  simulation.call(3) = calling(9, 0, "");  // long past it
  for (int i = 0; i < 5; ++i) {
    simulation.stall(0, 5);
    simulation.run();
  }
  for (const auto& failure : simulation.failures) CHECK(!failure);
  CHECK(simulation.logic(0).absent(kId, 5) == std::vector<int>{2});
}

// Rank 0 is in a collective, rank 1 in `state`; asked every 100 ms for 600 ms, between which so many bytes of its
// messages move.
std::optional<Error> ask_about(const CallState& state, bool threads_here = false, uint64_t bytes_moved = 0) {
  Simulation simulation(3, 11);
  simulation.open_everywhere(all_ranks(3));
  simulation.run();
  simulation.call(0) = calling(1, 1, "barrier()");
  simulation.call(0).threads = threads_here;
  simulation.call(1) = state;
  simulation.call(2) = calling(0, 0, "");
  for (int i = 0; i < 6; ++i) {
    simulation.at(simulation.now() + 100, 0,
                  [&](ControlLogic& logic) { logic.stalled(simulation.now(), kId, 1, simulation.call(0)); });
    simulation.run();
    simulation.call(1).p2p_moved += bytes_moved;
  }
  return simulation.failures[2];
}

CallState receiving(int peer) {
  CallState state;
  state.in_p2p = true;
  state.p2p_peer = peer;
  state.p2p_text = fmt::format("recv(source={})", peer);
  return state;
}

TEST_CASE("a collective against a blocking recv is a mismatch only where nobody is left to end the recv") {
  REQUIRE(ask_about(receiving(0)));
  CHECK(ask_about(receiving(0))->code == ErrorCode::kMismatch);
  CHECK(ask_about(receiving(0))->message.find("waits in recv(source=0)") != std::string::npos);
  CHECK(!ask_about(receiving(2)));   // rank 2 is not in the collective: it may send yet
  CHECK(!ask_about(receiving(-1)));  // so it may to any source
  CHECK(!ask_about(receiving(0), true));
  CallState threaded = receiving(0);
  threaded.threads = true;
  CHECK(!ask_about(threaded));
}

TEST_CASE("a message that is still coming is no mismatch, however slowly it comes") {
  REQUIRE(ask_about(receiving(0)));
  CHECK(!ask_about(receiving(0), false, 1));
}

TEST_CASE("texts name a member by its place in the communicator, and its world rank where that differs") {
  Simulation simulation(6, 3);
  simulation.open_everywhere({5, 2, 4});
  simulation.run();
  simulation.crash(2);
  simulation.run();
  for (int rank : {5, 4}) {
    REQUIRE(simulation.failures[static_cast<size_t>(rank)]);
    CHECK(simulation.failures[static_cast<size_t>(rank)]->message.find(
              "rank 1 (world rank 2, host h, pid 102) died or was cut off") == 0);
    CHECK(simulation.failures[static_cast<size_t>(rank)]->ranks == std::vector<int>{2});
  }
  for (int rank : {0, 1, 3}) CHECK(!simulation.failures[static_cast<size_t>(rank)]);
}

TEST_CASE("where not every pair is connected, a death and a goodbye still reach everybody") {
  const int world = 100;
  std::vector<std::vector<int>> neighbors(world);
  for (int rank = 0; rank < world; ++rank) {
    std::set<int> set;
    for (int distance = 1; distance < world; distance *= 2) {
      set.insert((rank + distance) % world);
      set.insert((rank + world - distance) % world);
    }
    neighbors[static_cast<size_t>(rank)] = {set.begin(), set.end()};
  }
  for (int victim : {0, 37, 99}) {
    Simulation simulation(world, static_cast<uint32_t>(victim), neighbors);
    simulation.open_everywhere(all_ranks(world));
    simulation.run();
    simulation.crash(victim);
    simulation.run();
    expect_loss_everywhere(simulation, {victim});
  }
  Simulation simulation(world, 5, neighbors);
  simulation.open_everywhere(all_ranks(world));
  simulation.run();
  simulation.at(simulation.now(), 8, [](ControlLogic& logic) { logic.leave(); });
  simulation.run();
  simulation.crash(8);
  simulation.run();
  for (int rank = 0; rank < world; ++rank) {
    CHECK(!simulation.failures[static_cast<size_t>(rank)]);
    if (rank != 8) CHECK(simulation.left[static_cast<size_t>(rank)].count(8) == 1);
  }
}

TEST_CASE("in a large communicator a stalled rank asks a part of the members at a time, and all of them in turn") {
  const int world = 256, at_once = 8;
  std::vector<int> askers(world);  // of each rank, at the first question of all ranks
  for (int rank = 0; rank < world; ++rank) {
    ControlLogic::Settings settings;
    settings.rank = rank;
    settings.names.assign(world, "host h");
    settings.neighbors = {(rank + world - 1) % world, (rank + 1) % world};
    ControlLogic logic(settings);
    logic.open(0, kId, all_ranks(world));
    CallState own;
    own.current = 7;
    std::set<int> asked;
    for (int question = 0; question < world / at_once; ++question) {
      logic.stalled(200 * question, kId, 7, own);
      const std::vector<ControlLogic::Action> actions = logic.take_actions();
      CHECK(static_cast<int>(actions.size()) <= at_once);
      for (const ControlLogic::Action& action : actions) {
        const auto* send = std::get_if<ControlLogic::Send>(&action);
        REQUIRE(send != nullptr);
        REQUIRE(std::get_if<QueryMessage>(&send->body) != nullptr);
        CHECK(asked.insert(send->peer).second);
        if (question == 0) ++askers[static_cast<size_t>(send->peer)];
      }
      if (question == 0) CHECK(logic.absent(kId, 7).size() == at_once);  // nobody has answered
    }
    CHECK(static_cast<int>(asked.size()) == world - 1);
    CHECK(static_cast<int>(logic.absent(kId, 7).size()) == world - 1);
  }
  CHECK(askers == std::vector<int>(world, at_once));
}

TEST_CASE(
    "fault 14: in a large communicator a rank whose call is overdue asks all members, and names all absent ones") {
  constexpr int kWorld = 256;
  ControlLogic::Settings settings;
  settings.names.assign(kWorld, "host h");
  settings.neighbors = {1, kWorld - 1};
  ControlLogic logic(settings);
  logic.open(0, kId, all_ranks(kWorld));
  CallState state;
  state.current = 7;
  logic.stalled(0, kId, 7, state, Ask::kAll);
  std::set<int> asked;
  for (const ControlLogic::Action& action : logic.take_actions())
    asked.insert(std::get<ControlLogic::Send>(action).peer);
  CHECK(asked.size() == kWorld - 1);
  for (const int peer : asked) {
    if (peer != 77 && peer != 200) logic.receive(10, peer, AnswerMessage{kId, 7, state});
  }
  CHECK(logic.absent(kId, 7) == std::vector<int>{77, 200});
}

TEST_CASE(
    "an abort that died on its way is said again to the member that asks, also after the communicator is closed") {
  // Proves: in worlds beyond 64 a message dies with the rank that passes it on; the question of the one that waits for
  // ever is answered with the failure.
  for (const bool closed : {false, true}) {
    CAPTURE(closed);
    ControlLogic::Settings settings;
    settings.rank = 0;
    settings.names = {"a", "b", "c"};
    settings.neighbors = {1};
    ControlLogic logic(settings);
    logic.open(0, kId, {0, 1, 2});
    logic.abort(0, kId, {ErrorCode::kAborted, "rank 0 gave up", {0}});
    if (closed) {
      logic.close(0, kId, 0);
      logic.forget(kId);
    }
    logic.take_actions();  // lost with rank 1
    logic.query(2, {kId, 1}, {});
    const auto answer = logic.take_actions();
    REQUIRE(answer.size() == 1);
    const auto& send = std::get<ControlLogic::Send>(answer[0]);
    CHECK(send.peer == 2);
    REQUIRE(std::holds_alternative<AbortMessage>(send.body));
    CHECK(std::get<AbortMessage>(send.body).error.message == "rank 0 gave up");
    logic.query(2, {kId + 1, 1}, {});
    CHECK(std::holds_alternative<AnswerMessage>(std::get<ControlLogic::Send>(logic.take_actions()[0]).body));
  }
}

TEST_CASE("what comes for a communicator before it is opened is kept, within a bound; after it is closed, dropped") {
  ControlLogic::Settings settings;
  settings.rank = 0;
  settings.names = {"a", "b"};
  settings.neighbors = {1};
  ControlLogic logic(settings);
  for (uint64_t id = 1; id <= 5'000; ++id) logic.receive(0, 1, ByeMessage{id, id});
  logic.open(0, 5'000, {0, 1});
  CHECK(logic.all_left(5'000));
  logic.open(0, 1, {0, 1});  // its goodbye was pushed out
  CHECK(!logic.all_left(1));
  logic.close(0, 1, 0);
  logic.forget(1);
  logic.take_actions();
  logic.receive(0, 1, AbortMessage{1, 0, {ErrorCode::kAborted, "late", {}}});
  CHECK(logic.take_actions().empty());
}

// --- silence

constexpr int64_t kHeartbeat = 1'000, kSuspicion = 10'000;

ControlLogic::Settings watchful() {
  ControlLogic::Settings settings;
  settings.liveness = {kHeartbeat, kSuspicion};
  settings.blame_after_ms = 2 * kHeartbeat;
  return settings;
}

std::vector<std::vector<int>> circle_neighbors(int world) {
  std::vector<std::vector<int>> neighbors;
  for (int rank = 0; rank < world; ++rank) {
    std::set<int> set;
    for (int distance = 1; distance < world; distance *= 2) {
      set.insert((rank + distance) % world);
      set.insert((rank + world - distance) % world);
    }
    neighbors.emplace_back(set.begin(), set.end());
  }
  return neighbors;
}

bool any_has(const std::vector<std::string>& lines, const std::string& part) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

// Proves: suspicion bounds the time, and no rank but the one that is stopped is blamed; beyond 64 ranks by hops, too.
TEST_CASE("fault 12: a rank that is stopped for ever is UNRESPONSIVE on all others by the suspicion") {
  for (const int world : {2, 3, 8, 100}) {
    for (uint32_t seed = 0; seed < 5; ++seed) {
      CAPTURE(world);
      CAPTURE(seed);
      Simulation simulation(world, seed, world > 64 ? circle_neighbors(world) : std::vector<std::vector<int>>{},
                            watchful());
      simulation.open_everywhere(all_ranks(world));
      const int victim = static_cast<int>(seed) % world;
      const int64_t stopped_at = 5'000 + 137 * seed;
      simulation.at(stopped_at, victim, [&](ControlLogic&) { simulation.stop(victim); });
      simulation.run([](int) {}, 40'000);
      const std::string name = fmt::format("rank {} (host h, pid {}) has not answered for 10 s", victim, 100 + victim);
      for (int rank = 0; rank < world; ++rank) {
        if (rank == victim) continue;
        CAPTURE(rank);
        const auto index = static_cast<size_t>(rank);
        REQUIRE(simulation.failures[index]);
        CHECK(simulation.failures[index]->code == ErrorCode::kUnresponsive);
        CHECK(simulation.failures[index]->ranks == std::vector{victim});
        CHECK(simulation.failures[index]->message.find(name) == 0);
        CHECK(simulation.failed_at[index] <= stopped_at + kSuspicion + kHeartbeat);
        CHECK(simulation.failed_at[index] >= stopped_at + kSuspicion - kHeartbeat - kMaxDelay);
      }
    }
  }
}

TEST_CASE("fault 11: a rank that is stopped for 3 s and goes on is warned of, is no failure, and accuses nobody") {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    Simulation simulation(4, seed, {}, watchful());
    simulation.open_everywhere(all_ranks(4));
    const int64_t stopped_at = 3'000 + 41 * seed;
    simulation.at(stopped_at, 2, [&](ControlLogic&) { simulation.stop(2); });
    simulation.at(stopped_at + 3'000, 0, [&](ControlLogic&) { simulation.go_on(2); });
    simulation.run([](int) {}, 30'000);
    for (size_t rank = 0; rank < 4; ++rank) {
      CAPTURE(rank);
      CHECK_FALSE(simulation.failures[rank]);
      CHECK(any_has(simulation.notes[rank], "rank 2 (host h, pid 102) has not answered for 2 s") == (rank != 2));
      CHECK(any_has(simulation.notes[rank], "rank 2 (host h, pid 102) answers again") == (rank != 2));
      if (rank == 2) CHECK(any_has(simulation.notes[rank], "rank 2 (host h, pid 102) made no progress for "));
    }
  }
}

TEST_CASE("fault 12: a rank that goes on after it was given up learns so, and takes nobody for dead") {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    Simulation simulation(3, seed, {}, watchful());
    simulation.open_everywhere(all_ranks(3));
    simulation.at(2'000, 1, [&](ControlLogic&) { simulation.stop(1); });
    simulation.at(30'000, 0, [&](ControlLogic&) { simulation.go_on(1); });
    simulation.run([](int) {}, 60'000);
    REQUIRE(simulation.failures[1]);
    CHECK(simulation.failures[1]->code == ErrorCode::kUnresponsive);
    CHECK(simulation.failures[1]->ranks == std::vector{1});
    CHECK(simulation.failures[1]->message == simulation.failures[0]->message);
    for (const auto& notes : simulation.notes) CHECK_FALSE(any_has(notes, "died"));
  }
}

TEST_CASE("fault 12: two ranks that are stopped are both named") {
  Simulation simulation(5, 7, {}, watchful());
  simulation.open_everywhere(all_ranks(5));
  simulation.at(2'000, 1, [&](ControlLogic&) { simulation.stop(1); });
  simulation.at(3'500, 3, [&](ControlLogic&) { simulation.stop(3); });
  simulation.run([](int) {}, 40'000);
  for (const size_t rank : {0u, 2u, 4u}) {
    CAPTURE(rank);
    REQUIRE(simulation.failures[rank]);
    CHECK(simulation.failures[rank]->code == ErrorCode::kUnresponsive);
    CHECK(simulation.failures[rank]->ranks == std::vector{1, 3});
  }
}

// --- whom a call waits for

// All ranks but `absent` are in call 9 since `since`, and ask.
void stall_in_call_9(Simulation& simulation, int absent, int64_t since) {
  for (int rank = 0; rank < simulation.world(); ++rank) {
    CallState& call = simulation.call(rank);
    call.current = rank == absent ? 8 : 9;
    if (rank == absent) continue;
    call.fingerprint = 77;
    call.text = "all_reduce(count=8, float32, sum)";
    for (int64_t time = since + 200; time < since + 2'500; time += 200) {
      simulation.at(time, rank, [&simulation, rank, since](ControlLogic&) {
        simulation.call(rank).since_ms = static_cast<uint64_t>(simulation.now() - since);
        simulation.stall(rank, 9);
      });
    }
  }
}

std::vector<std::string> blame_lines(const Simulation& simulation, int rank) {
  std::vector<std::string> lines;
  for (const std::string& note : simulation.notes[static_cast<size_t>(rank)]) {
    if (note.find("the ranks waited ") == 0) lines.push_back(note);
  }
  return lines;
}

TEST_CASE("a rank that never makes the call is named in one sentence, the same on each rank, itself included") {
  Simulation simulation(4, 3, {}, watchful());
  simulation.open_everywhere(all_ranks(4));
  stall_in_call_9(simulation, 2, 4'000);
  simulation.run([](int) {}, 7'000);
  const auto said = blame_lines(simulation, 0);
  REQUIRE(said.size() == 1);
  CHECK(said[0].find("in collective call 8, all_reduce(count=8, float32, sum), for rank 2 (host h, pid 102), which has "
                     "not begun it 2") != std::string::npos);
  for (int rank = 1; rank < 4; ++rank) CHECK(blame_lines(simulation, rank) == said);
}

TEST_CASE("a rank that is stopped in the call is told apart from one that is late") {
  Simulation simulation(4, 3, {}, watchful());
  simulation.open_everywhere(all_ranks(4));
  simulation.at(4'000, 2, [&](ControlLogic&) { simulation.stop(2); });
  stall_in_call_9(simulation, 2, 4'000);
  simulation.run([](int) {}, 7'000);
  const auto said = blame_lines(simulation, 0);
  REQUIRE(said.size() == 1);
  CHECK(said[0].find("for rank 2 (host h, pid 102), which made no progress for ") != std::string::npos);
  CHECK(said[0].find("its process was stopped, or its core was taken") != std::string::npos);
  for (const int rank : {1, 3}) CHECK(blame_lines(simulation, rank) == said);
}

TEST_CASE("where all have made the call, the slowest link is named with its share; a sound one is not") {
  for (const uint64_t rate : {uint64_t{1'000'000}, uint64_t{60'000'000}}) {
    CAPTURE(rate);
    Simulation simulation(3, 5, {}, watchful());
    simulation.open_everywhere(all_ranks(3));
    stall_in_call_9(simulation, -1, 4'000);
    simulation.call(0).slowest = {1, 80'000'000, 100'000'000};
    simulation.call(1).slowest = {2, rate, 100'000'000};
    simulation.run([](int) {}, 7'000);
    for (int rank = 0; rank < 3; ++rank) {
      const auto said = blame_lines(simulation, rank);
      REQUIRE(said.size() == (rate == 1'000'000 ? 1 : 0));
      if (said.empty()) continue;
      CHECK(
          said[0].find("for the link from rank 1 (host h, pid 101) to rank 2 (host h, pid 102), which moves 1 MB/s, 1 "
                       "% of its best rate") != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace rondo
