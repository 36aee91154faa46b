// What ranks whose call does not end ask each other: different calls are a mismatch, and absent ranks are named.
#include "transport/control/control_logic.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "tests/fabric/control_simulation.h"

namespace rondo::testing {
namespace {

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
      OpenSimulation simulation(world, static_cast<uint32_t>(asker));
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
    OpenSimulation simulation(3, 5);
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
  OpenSimulation simulation(4, 7);
  simulation.call(0) = calling(5, 1, "barrier()");
  simulation.call(1) = calling(5, 1, "barrier()");
  simulation.call(2) = calling(4, 0, "");
  simulation.call(3) = calling(9, 0, "");  // long past it
  for (int i = 0; i < 5; ++i) {
    simulation.stall(0, 5);
    simulation.run();
  }
  for (const auto& failure : simulation.failures) CHECK(!failure);
  CHECK(simulation.logic(0).find(kId)->inquiry.absent(5) == std::vector<int>{2});
}

// How the group fails, as rank 2 hears it; nothing: it does not. Rank 0 is in a collective, rank 1 in `state`. Rank 0
// asks every 100 ms, six times; after each question rank 1's messages move by `bytes_moved` bytes, and its thread has
// looked `looks` times more.
std::optional<Error> ask_about(const CallState& state, bool threads_here = false, uint64_t bytes_moved = 0,
                               uint64_t looks = 1) {
  OpenSimulation simulation(3, 11);
  simulation.call(0) = calling(1, 1, "barrier()");
  simulation.call(0).threads = threads_here;
  simulation.call(1) = state;
  simulation.call(2) = calling(0, 0, "");
  for (int i = 0; i < 6; ++i) {
    simulation.at(simulation.now() + 100, 0,
                  [&](ControlLogic& logic) { logic.stalled(simulation.now(), kId, 1, simulation.call(0)); });
    simulation.run();
    simulation.call(1).p2p_moved += bytes_moved;
    simulation.call(1).p2p_looks += looks;
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
  CHECK(!ask_about(receiving(0), false, 1));     // its message comes, however slowly
  CHECK(!ask_about(receiving(0), false, 0, 0));  // its thread, which has not run since it fell asleep, may find it done
}

TEST_CASE("in a large communicator a stalled rank asks a part of the members at a time, and all of them in turn") {
  const int world = 256, at_once = 8;
  std::vector<int> askers(world);  // of each rank, at the first question of all ranks
  for (int rank = 0; rank < world; ++rank) {
    ControlSettings settings;
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
      const std::vector<control::Action> actions = logic.take_actions();
      CHECK(static_cast<int>(actions.size()) <= at_once);
      for (const control::Action& action : actions) {
        const auto* send = std::get_if<control::Send>(&action);
        REQUIRE(send != nullptr);
        REQUIRE(std::get_if<QueryMessage>(&send->body) != nullptr);
        CHECK(asked.insert(send->peer).second);
        if (question == 0) ++askers[static_cast<size_t>(send->peer)];
      }
      if (question == 0) CHECK(logic.find(kId)->inquiry.absent(7).size() == at_once);  // nobody has answered
    }
    CHECK(static_cast<int>(asked.size()) == world - 1);
    CHECK(static_cast<int>(logic.find(kId)->inquiry.absent(7).size()) == world - 1);
  }
  CHECK(askers == std::vector<int>(world, at_once));
}

TEST_CASE(
    "fault 14: in a large communicator a rank whose call is overdue asks all members, and names all absent ones") {
  constexpr int kWorld = 256;
  ControlSettings settings;
  settings.names.assign(kWorld, "host h");
  settings.neighbors = {1, kWorld - 1};
  ControlLogic logic(settings);
  logic.open(0, kId, all_ranks(kWorld));
  CallState state;
  state.current = 7;
  logic.stalled(0, kId, 7, state, Ask::kAll);
  std::set<int> asked;
  for (const control::Action& action : logic.take_actions()) asked.insert(std::get<control::Send>(action).peer);
  CHECK(asked.size() == kWorld - 1);
  for (const int peer : asked) {
    if (peer != 77 && peer != 200) logic.receive(10, peer, AnswerMessage{kId, 7, state});
  }
  CHECK(logic.find(kId)->inquiry.absent(7) == std::vector<int>{77, 200});
}

}  // namespace
}  // namespace rondo::testing
