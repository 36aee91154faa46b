// Ranks that are silent, and whom a call waits for: the same is said on every rank.
#include "transport/control/control_logic.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/fabric/control_simulation.h"

namespace rondo::testing {
namespace {

constexpr int64_t kHeartbeat = 1'000, kSuspicion = 10'000;

ControlSettings watchful() {
  ControlSettings settings;
  settings.liveness = {kHeartbeat, kSuspicion};
  settings.blame_after_ms = 2 * kHeartbeat;
  return settings;
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

// Proves: whichever comes first, the end of its links or the suspicion, a silence is one fault.
TEST_CASE("fault 15: a rank whose links end after it has fallen silent is UNRESPONSIVE, by the suspicion") {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    Simulation simulation(3, seed, {}, watchful());
    simulation.open_everywhere(all_ranks(3));
    const int64_t stopped_at = 3'000 + 41 * seed, ended_at = stopped_at + 3'100 + 135 * seed;
    simulation.at(stopped_at, 2, [&](ControlLogic&) { simulation.stop(2); });
    for (const int rank : {0, 1}) {
      simulation.at(ended_at, rank, [&, rank](ControlLogic& logic) {
        logic.link_failed(ended_at, kId, 2, {ErrorCode::kPeerLost, "rank 2 closed the connection", {}});
      });
    }
    simulation.run([](int) {}, 30'000);
    for (const size_t rank : {0, 1}) {
      REQUIRE(simulation.failures[rank]);
      CHECK(simulation.failures[rank]->code == ErrorCode::kUnresponsive);
      CHECK(simulation.failed_at[rank] <= stopped_at + kSuspicion + kHeartbeat);
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

// All ranks but `absent` are in call 9 since `since`, and ask, for so long.
void stall_in_call_9(Simulation& simulation, int absent, int64_t since, int64_t lasts = 2'500) {
  for (int rank = 0; rank < simulation.world(); ++rank) {
    CallState& call = simulation.call(rank);
    call.current = rank == absent ? 8 : 9;
    if (rank == absent) continue;
    call.fingerprint = 77;
    call.text = "all_reduce(count=8, float32, sum)";
    for (int64_t time = since + 200; time < since + lasts; time += 200) {
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

TEST_CASE("a rank that never makes the call is named in one line of one log, however long the others wait") {
  Simulation simulation(4, 3, {}, watchful());
  simulation.open_everywhere(all_ranks(4));
  stall_in_call_9(simulation, 2, 4'000, 20'000);
  simulation.run([](int) {}, 25'000);
  const auto said = blame_lines(simulation, 0);
  REQUIRE(said.size() == 1);
  CHECK(said[0].find("in collective call 8, all_reduce(count=8, float32, sum), for rank 2 (host h, pid 102), which has "
                     "not begun it 2") != std::string::npos);
  for (int rank = 1; rank < 4; ++rank) CHECK(blame_lines(simulation, rank).empty());
  // All that wait have it for their errors, and for who asks; nobody is waited for in another call.
  for (const int rank : {0, 1, 3}) {
    const auto waiting = simulation.logic(rank).find(kId)->inquiry.waiting(simulation.now(), 9, {});
    CHECK(waiting.ranks == std::vector{2});
    CHECK(waiting.sentence.find("for rank 2 (host h, pid 102), which has not begun it") != std::string::npos);
    CHECK(simulation.logic(rank).find(kId)->inquiry.blame(simulation.now(), 9) == waiting.sentence);
    CHECK(simulation.logic(rank).find(kId)->inquiry.waiting(simulation.now(), 8, {}).sentence.empty());
  }
  CHECK(simulation.logic(2).find(kId)->inquiry.waiting(simulation.now(), 9, {}).ranks.empty());
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
  for (const int rank : {1, 3}) CHECK(blame_lines(simulation, rank).empty());
}

TEST_CASE("what another rank says of an earlier call is not said of this one") {
  OpenSimulation simulation(2, 3);
  simulation.call(1).current = 10;
  simulation.stall(1, 10);
  const auto heard = [&](uint64_t sequence, const std::string& text) {
    simulation.logic(1).receive(simulation.now(), 0, BlameMessage{kId, sequence, text});
    return simulation.logic(1).find(kId)->inquiry.blame(simulation.now(), 10);
  };
  CHECK(heard(9, "the ranks waited in call 8") == "");
  CHECK(heard(10, "the ranks waited in call 9") == "the ranks waited in call 9");
  CHECK(heard(9, "the ranks waited in call 8") == "the ranks waited in call 9");
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
      REQUIRE(said.size() == (rate == 1'000'000 && rank == 0 ? 1 : 0));
      CHECK(simulation.logic(rank).find(kId)->inquiry.waiting(simulation.now(), 9, {}).sentence.empty() ==
            (rate != 1'000'000));
      if (said.empty()) continue;
      CHECK(
          said[0].find("for the link from rank 1 (host h, pid 101) to rank 2 (host h, pid 102), which moves 1 MB/s, 1 "
                       "% of its best rate") != std::string::npos);
    }
  }
}

// --- whom a message waits for

// `rank` waits in a message from or to `peer` (-1: any) since 2 s, and asks at that time.
void wait_in_message(Simulation& simulation, int rank, int peer, int64_t time = 4'000) {
  CallState& call = simulation.call(rank);
  call.in_p2p = true;
  call.p2p_peer = peer;
  call.p2p_text = fmt::format("recv(8 bytes from rank {}, tag 5)", peer);
  call.since_ms = 2'000;
  simulation.at(time, rank, [&simulation, rank](ControlLogic&) { simulation.stall(rank, kMessagesSequence); });
}

std::vector<std::string> lines_with(const Simulation& simulation, int rank, const std::string& part) {
  std::vector<std::string> lines;
  for (const std::string& note : simulation.notes[static_cast<size_t>(rank)]) {
    if (note.find(part) != std::string::npos) lines.push_back(note);
  }
  return lines;
}

TEST_CASE("ranks whose messages wait for each other are named in one line of one log") {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    Simulation simulation(4, seed, {}, watchful());
    simulation.open_everywhere(all_ranks(4));
    for (const int rank : {0, 1, 2}) wait_in_message(simulation, rank, (rank + 1) % 3, 4'000 + 10 * rank);
    simulation.run([](int) {}, 8'000);
    const auto said = lines_with(simulation, 0, "has waited");
    REQUIRE(said.size() == 1);
    CHECK(said[0] ==
          "rank 0 (host h, pid 100) has waited 2 s in recv(8 bytes from rank 1, tag 5); rank 1 (host h, pid 101) waits "
          "in recv(8 bytes from rank 2, tag 5); rank 2 (host h, pid 102) waits in recv(8 bytes from rank 0, tag 5): "
          "these ranks wait for each other");
    for (const int rank : {1, 2, 3}) CHECK(lines_with(simulation, rank, "has waited").empty());
    CHECK_FALSE(simulation.failures[0]);
  }
}

TEST_CASE("a rank that waits for a message is told what the one does that it waits for") {
  Simulation simulation(4, 3, {}, watchful());
  simulation.open_everywhere(all_ranks(4));
  simulation.at(1'000, 2, [&](ControlLogic&) { simulation.stop(2); });
  wait_in_message(simulation, 0, 1);
  wait_in_message(simulation, 1, 2);
  wait_in_message(simulation, 3, -1);
  simulation.call(2).in_p2p = true;  // it does not say so: it is stopped
  simulation.run([](int) {}, 8'000);
  const auto said = lines_with(simulation, 1, "has waited");
  REQUIRE(said.size() == 1);
  CHECK(said[0].find("rank 1 (host h, pid 101) has waited 2 s in recv(8 bytes from rank 2, tag 5); rank 2 (host h, pid "
                     "102) made no progress for ") == 0);
  CHECK(lines_with(simulation, 0, "rank 2 (host h, pid 102) made no progress for ").size() == 1);
  const auto any = lines_with(simulation, 3, "has waited");
  REQUIRE(any.size() == 1);
  CHECK(any[0] == "rank 3 (host h, pid 103) has waited 2 s in recv(8 bytes from rank -1, tag 5)");
}

TEST_CASE("what no rank waits for: a rank that computes, the rank itself, and a receive from any that all wait with") {
  Simulation simulation(3, 3, {}, watchful());
  simulation.open_everywhere(all_ranks(3));
  wait_in_message(simulation, 0, 1);
  simulation.run([](int) {}, 5'000);
  CHECK(lines_with(simulation, 0, "; rank 1 (host h, pid 101) waits in no message").size() == 1);
  wait_in_message(simulation, 0, 0, 6'000);
  simulation.run([](int) {}, 7'000);
  CHECK(lines_with(simulation, 0, "in recv(8 bytes from rank 0, tag 5): it waits for itself").size() == 1);
  for (const int rank : {0, 1, 2}) wait_in_message(simulation, rank, -1, 8'000);
  simulation.run([](int) {}, 9'000);
  for (const int rank : {0, 1, 2})
    CHECK(lines_with(simulation, rank, "; all other ranks wait in messages, too").size() == 1);
}

}  // namespace
}  // namespace rondo::testing
