// Deaths, goodbyes and aborts, at every moment: all ranks learn of them alike, and blame nobody alive.
#include "transport/control/control_logic.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/fabric/control_simulation.h"

namespace rondo::testing {
namespace {

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
      OpenSimulation simulation(world, seed);
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
  OpenSimulation lost(4, 1);
  lost.crash(3);
  lost.run();
  lost.crash(1);
  lost.run();
  for (const int rank : {0, 2}) {
    CHECK(lost.failures[static_cast<size_t>(rank)]->ranks == std::vector<int>{3, 1});
    CHECK(lost.failures[static_cast<size_t>(rank)]->message.find("; rank 1 (host h, pid 101) died too: ") !=
          std::string::npos);
  }

  OpenSimulation aborted(3, 1);
  aborted.at(aborted.now(), 0, [&](ControlLogic& logic) {
    logic.abort(kId, {ErrorCode::kAborted, "rank 0 aborted the group", {0}});
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
      OpenSimulation simulation(world, seed);
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

TEST_CASE("where goodbyes go from rank to rank, a rank that has heard all and ends leaves nobody waiting") {
  constexpr int kWorld = 24;
  for (uint32_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Simulation simulation(kWorld, seed, circle_neighbors(kWorld));
    simulation.open_everywhere(all_ranks(kWorld));
    for (int rank = 0; rank < kWorld; ++rank) {
      const auto time = static_cast<int64_t>(kMaxDelay + random() % 20);
      simulation.at(time, rank, [](ControlLogic& logic) { logic.close(kId, 5, {}); });
      simulation.leave_when_all_left(rank, time);
    }
    simulation.run([](int) {}, 10'000);
    for (int rank = 0; rank < kWorld; ++rank) {
      CAPTURE(rank);
      CHECK(!simulation.failures[static_cast<size_t>(rank)]);
      CHECK(simulation.logic(rank).all_left(kId));
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
        simulation.at(time, rank,
                      [rank](ControlLogic& logic) { logic.close(kId, static_cast<uint64_t>(rank) + 5, {}); });
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

// A rank whose streams come by another way than its goodbye, some of them, or none.
struct Streams {
  // `from` opens streams to others, some of which come, and says goodbye at `time`.
  void leave(int from, int64_t time, int64_t longest_way, int percent_lost) {
    simulation.at(time, from, [=, this](ControlLogic& logic) {
      std::set<int> opened;
      for (int peer = 0; peer < simulation.world(); ++peer) {
        if (peer == from || random() % 2 == 0) continue;
        opened.insert(peer);
        const bool lost = random() % 100 < static_cast<uint32_t>(percent_lost);
        arrives[{from, peer}] = lost ? -1 : time + static_cast<int64_t>(random() % static_cast<uint32_t>(longest_way));
      }
      for (const int peer : opened) {
        if (arrives[{from, peer}] < 0) continue;
        simulation.at(arrives[{from, peer}], peer, [=](ControlLogic& other) { other.streamed(kId, from); });
      }
      logic.close(kId, static_cast<uint64_t>(from) + 5, opened);
    });
  }

  Simulation& simulation;
  std::mt19937& random;
  std::map<std::pair<int, int>, int64_t> arrives = {};  // when; -1: never
};

TEST_CASE("a goodbye is told once the stream that its sender had opened is there, however late that comes") {
  int late = 0;
  for (int world = 2; world <= 8; ++world) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      CAPTURE(world);
      CAPTURE(seed);
      std::mt19937 random(seed);
      ControlSettings settings;
      settings.stream_ms = 1'000;
      Simulation simulation(world, seed, {}, settings);
      Streams streams{simulation, random};
      simulation.open_everywhere(all_ranks(world));
      streams.leave(0, kMaxDelay + 1, 500, 0);
      std::set<int> told;
      simulation.run([&](int) {
        for (int rank = 1; rank < world; ++rank) {
          if (simulation.left[static_cast<size_t>(rank)].empty() || !told.insert(rank).second) continue;
          const auto stream = streams.arrives.find({0, rank});
          if (stream == streams.arrives.end()) continue;
          CHECK(simulation.now() >= stream->second);
          late += simulation.now() > kMaxDelay + 1 + kMaxDelay;
        }
      });
      for (int rank = 1; rank < world; ++rank) {
        CHECK(!simulation.failures[static_cast<size_t>(rank)]);
        CHECK(simulation.left[static_cast<size_t>(rank)] == std::map<int, uint64_t>{{0, 5}});
      }
    }
  }
  CHECK(late > 100);
}

TEST_CASE("a stream that a goodbye speaks of and that never comes is an error in time, by the deadline or the death") {
  for (const bool dies : {false, true}) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      CAPTURE(dies);
      CAPTURE(seed);
      std::mt19937 random(seed);
      ControlSettings settings;
      settings.stream_ms = 1'000;
      Simulation simulation(4, seed, {}, settings);
      Streams streams{simulation, random};
      simulation.open_everywhere(all_ranks(4));
      simulation.run();
      streams.leave(0, 100, 1, 100);
      if (dies) simulation.at(200, 1, [&](ControlLogic&) { simulation.crash(0); });
      simulation.run();
      if (streams.arrives.empty()) continue;
      for (int rank = 1; rank < 4; ++rank) {
        CAPTURE(rank);
        const auto& failure = simulation.failures[static_cast<size_t>(rank)];
        REQUIRE(failure);  // all members hear of it
        CHECK(failure->code == (dies ? ErrorCode::kPeerLost : ErrorCode::kNetwork));
        CHECK(failure->ranks == std::vector<int>{0});
        const int64_t limit = (dies ? 200 : 100 + 1'000) + 4 * kMaxDelay;
        CHECK(simulation.failed_at[static_cast<size_t>(rank)] <= limit);
      }
    }
  }
}

TEST_CASE("fault 6: a crash while others close leaves no close waiting, and blames nobody alive") {
  for (int world = 2; world <= 8; ++world) {
    for (int index = 0; index < 4 * world; ++index) {
      CAPTURE(world);
      CAPTURE(index);
      Simulation simulation(world, static_cast<uint32_t>(index));
      simulation.open_everywhere(all_ranks(world));
      for (int rank = 0; rank < world; ++rank) {
        simulation.at(50 + rank * 5, rank, [](ControlLogic& logic) { logic.close(kId, 1, {}); });
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
  OpenSimulation simulation(3, 1);
  // Rank 1 aborted because rank 2 died, and closed its links; rank 0 sees that first.
  simulation.logic(0).link_failed(simulation.now(), kId, 1, {ErrorCode::kPeerLost, "closed", {}});
  simulation.crash(2);
  simulation.run();
  CHECK(simulation.failures[0]->ranks == std::vector<int>{2});

  OpenSimulation orderly(2, 1);
  orderly.logic(0).link_failed(orderly.now(), kId, 1, {ErrorCode::kPeerLost, "closed", {}});
  orderly.at(orderly.now() + 50, 1, [&](ControlLogic& logic) { logic.close(kId, 3, {}); });
  orderly.run();
  CHECK(!orderly.failures[0]);
  CHECK(orderly.left[0] == std::map<int, uint64_t>{{1, 3}});

  // The peer's own death, whenever it is seen within the link's grace of 100 ms.
  for (const int64_t later : {0, 50, 79, 81, 95, 99}) {
    OpenSimulation dying(2, 1);
    dying.logic(0).link_failed(dying.now(), kId, 1, {ErrorCode::kNetwork, "reset", {}});
    dying.at(dying.now() + later, 0, [&](ControlLogic& logic) { logic.connection_ended(dying.now(), 1, "its end"); });
    dying.run();
    REQUIRE(dying.failures[0]);
    CHECK(dying.failures[0]->code == ErrorCode::kPeerLost);
    CHECK(dying.failures[0]->message.find("its end") != std::string::npos);
  }
}

TEST_CASE("fault 20: a link that is corrupt for one end, and closed for the other, is corrupt for both") {
  OpenSimulation simulation(2, 1);
  simulation.logic(0).link_failed(simulation.now(), kId, 1, {ErrorCode::kPeerLost, "closed", {}});
  simulation.logic(1).link_failed(simulation.now(), kId, 0, {ErrorCode::kCorrupt, "its bytes arrived damaged", {}});
  simulation.run();
  for (const int rank : {0, 1}) {
    REQUIRE(simulation.failures[static_cast<size_t>(rank)]);
    CHECK(simulation.failures[static_cast<size_t>(rank)]->code == ErrorCode::kCorrupt);
  }
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

TEST_CASE("where not every pair is connected, a cut costs its two ranks each other; who is cut off from all is lost") {
  const int world = 20;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    Simulation simulation(world, seed, circle_neighbors(world));
    const std::vector<int> neighbors = circle_neighbors_of(0, world);
    const int first = neighbors[seed % neighbors.size()];
    simulation.at(100, 1, [&](ControlLogic&) { simulation.cut(0, first); });
    simulation.run([](int) {}, 1'000);
    for (int rank = 1; rank < world; ++rank) CHECK(simulation.logic(rank).departures().gone(0) == (rank == first));
    for (int rank = 1; rank < world; ++rank) CHECK(simulation.logic(0).departures().gone(rank) == (rank == first));
    simulation.at(1'000, 1, [&](ControlLogic&) {
      for (const int peer : neighbors) {
        if (peer != first) simulation.cut(0, peer);
      }
    });
    simulation.run([](int) {}, 2'000);
    for (int rank = 1; rank < world; ++rank) CHECK(simulation.logic(rank).departures().gone(0));
    for (int rank = 1; rank < world; ++rank) CHECK(simulation.logic(0).departures().gone(rank));
  }
}

TEST_CASE("where not every pair is connected, a death and a goodbye still reach everybody") {
  const int world = 100;
  const std::vector<std::vector<int>> neighbors = circle_neighbors(world);
  for (int victim : {0, 37, 99}) {
    OpenSimulation simulation(world, static_cast<uint32_t>(victim), neighbors);
    simulation.crash(victim);
    simulation.run();
    expect_loss_everywhere(simulation, {victim});
  }
  OpenSimulation simulation(world, 5, neighbors);
  simulation.at(simulation.now(), 8, [](ControlLogic& logic) { logic.leave(); });
  simulation.run();
  simulation.crash(8);
  simulation.run();
  for (int rank = 0; rank < world; ++rank) {
    CHECK(!simulation.failures[static_cast<size_t>(rank)]);
    if (rank != 8) CHECK(simulation.left[static_cast<size_t>(rank)].count(8) == 1);
  }
}

TEST_CASE(
    "an abort that died on its way is said again to the member that asks, also after the communicator is closed") {
  // Proves: in worlds beyond 64 a message dies with the rank that passes it on; the question of the one that waits for
  // ever is answered with the failure.
  for (const bool closed : {false, true}) {
    CAPTURE(closed);
    ControlSettings settings;
    settings.rank = 0;
    settings.names = {"a", "b", "c"};
    settings.neighbors = {1};
    ControlLogic logic(settings);
    logic.open(0, kId, {0, 1, 2});
    logic.abort(kId, {ErrorCode::kAborted, "rank 0 gave up", {0}});
    if (closed) {
      logic.close(kId, 0, {});
      logic.forget(kId);
    }
    logic.take_actions();  // lost with rank 1
    logic.query(2, {kId, 1}, {});
    const auto answer = logic.take_actions();
    REQUIRE(answer.size() == 1);
    const auto& send = std::get<control::Send>(answer[0]);
    CHECK(send.peer == 2);
    REQUIRE(std::holds_alternative<AbortMessage>(send.body));
    CHECK(std::get<AbortMessage>(send.body).error.message == "rank 0 gave up");
    logic.query(2, {kId + 1, 1}, {});
    CHECK(std::holds_alternative<AnswerMessage>(std::get<control::Send>(logic.take_actions()[0]).body));
  }
}

TEST_CASE("a failure says whether the rank that has met it had the communicator already, to all that hear of it") {
  // Proves: of the same error those that make the communicator know whether it is one of its making. Rank 1 passes it
  // on.
  for (const bool made : {false, true}) {
    CAPTURE(made);
    std::deque<ControlLogic> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ControlSettings settings;
      settings.rank = rank;
      settings.names = {"a", "b", "c"};
      settings.neighbors = rank == 1 ? std::vector<int>{0, 2} : std::vector<int>{1};
      ranks.emplace_back(settings).open(0, kId, {0, 1, 2});
    }
    if (made) ranks[0].find(kId)->life.made();
    ranks[0].abort(kId, {ErrorCode::kNotFinite, "element 0 is NaN", {0}});
    for (int rank = 0; rank < 3; ++rank) {
      CAPTURE(rank);
      std::optional<Stage> stage;
      for (const auto& action : ranks[static_cast<size_t>(rank)].take_actions()) {
        if (const auto* fail = std::get_if<control::Fail>(&action)) stage = fail->stage;
        const auto* send = std::get_if<control::Send>(&action);
        if (send != nullptr && send->peer == rank + 1)
          ranks[static_cast<size_t>(send->peer)].receive(0, rank, send->body);
      }
      CHECK(stage == (made ? Stage::kUse : Stage::kMaking));
    }
  }
}

TEST_CASE("what comes for a communicator before it is opened is kept, within a bound; after it is closed, dropped") {
  ControlSettings settings;
  settings.rank = 0;
  settings.names = {"a", "b"};
  settings.neighbors = {1};
  ControlLogic logic(settings);
  for (uint64_t id = 1; id <= 5'000; ++id) logic.receive(0, 1, ByeMessage{id, id});
  logic.open(0, 5'000, {0, 1});
  CHECK(logic.all_left(5'000));
  logic.open(0, 1, {0, 1});  // its goodbye was pushed out
  CHECK(!logic.all_left(1));
  logic.close(1, 0, {});
  logic.forget(1);
  logic.take_actions();
  logic.receive(0, 1, AbortMessage{1, Stage::kMaking, {ErrorCode::kAborted, "late", {}}});
  CHECK(logic.take_actions().empty());
}

}  // namespace
}  // namespace rondo::testing
