// Who goes on, by the control planes of all ranks. Deaths at every moment: membership_test, tests/simulation.
#include <doctest/doctest.h>

#include <vector>

#include "tests/fabric/control_simulation.h"
#include "transport/control/control_logic.h"

namespace rondo::testing {
namespace {

constexpr int64_t kPatience = 2'000;

TEST_CASE("one of two goes on only once the other's process is known to have ended") {
  for (const bool proven : {false, true}) {
    Simulation simulation(2, 1);
    simulation.open_everywhere({0, 1});
    simulation.at(40, 1, [&](ControlLogic&) { simulation.crash(0); });
    simulation.shrink_when_failed(1, 50, kPatience);
    if (proven) simulation.at(300, 1, [&](ControlLogic& logic) { logic.ended(simulation.now(), 0); });
    simulation.run();
    REQUIRE(!simulation.logic(1).shrinking(kId));
    if (proven) {
      CHECK(simulation.logic(1).shrunk(kId).members == std::vector<int>{1});
    } else {
      CHECK_THROWS_WITH_AS(simulation.logic(1).shrunk(kId),
                           "no quorum: nobody goes on, since rank 0 (host h, pid 100) cannot be reached and may go on "
                           "by themselves: nobody has seen their processes end. Start the job again, or end those and "
                           "call shrink() again",
                           Exception);
    }
  }
}

// Proves: one rank's verdict is of its own way to the others, and no reason to end those that hear each other.
TEST_CASE("a rank that hears no other is left out, and a rank that one other does not hear goes on with the rest") {
  constexpr uint64_t kNext = kId + 1;
  ControlSettings watchful;
  watchful.liveness = {500, 2'000};
  for (const bool deaf : {true, false}) {
    for (uint32_t seed = 0; seed < 50; ++seed) {
      CAPTURE(deaf);
      CAPTURE(seed);
      Simulation simulation(4, seed, {}, watchful);
      simulation.open_everywhere(all_ranks(4));
      simulation.at(1'000, 0, [&](ControlLogic&) {
        for (int rank = deaf ? 0 : 2; rank < 3; ++rank) simulation.silence(rank, 3);
      });
      for (int rank = 0; rank < 4; ++rank) simulation.shrink_when_failed(rank, 50, kPatience);
      simulation.run([](int) {}, 20'000);
      std::vector<int> members = simulation.logic(0).shrunk(kId).members;
      CHECK(members.size() == 3);
      if (deaf) CHECK(members == std::vector{0, 1, 2});
      for (const int rank : members) {
        CAPTURE(rank);
        CHECK(simulation.logic(rank).shrunk(kId).members == members);
        simulation.at(20'000, rank, [&](ControlLogic& logic) { logic.open(simulation.now(), kNext, members); });
      }
      simulation.run([](int) {}, 40'000);
      for (const int rank : members) CHECK(!failed(simulation.logic(rank), kNext));
      const int last = members.back();
      simulation.at(40'000, last, [&](ControlLogic&) { simulation.crash(last); });
      simulation.run([](int) {}, 60'000);
      for (const int rank : members) CHECK((rank == last || failed(simulation.logic(rank), kNext)));
    }
  }
}

// Proves: small control messages pass where data does not, and shrink() does not give the same members again and again.
TEST_CASE("two that no data reaches over a new connection either do not go on together; after the first time they do") {
  for (const int times : {1, 2}) {
    CAPTURE(times);
    Simulation simulation(3, 1);
    simulation.open_everywhere(all_ranks(3));
    simulation.at(1'000, 0, [&](ControlLogic& logic) {
      for (int i = 0; i < times; ++i) {
        logic.way_failed(simulation.now(), kId, 1, {ErrorCode::kNetwork, "no byte was acknowledged", {1}});
      }
    });
    for (int rank = 0; rank < 3; ++rank) simulation.shrink_when_failed(rank, 50, kPatience);
    simulation.run([](int) {}, 20'000);
    for (int rank = 0; rank < 3; ++rank)
      CHECK(simulation.failures[static_cast<size_t>(rank)]->code == ErrorCode::kNetwork);
    CHECK(simulation.logic(0).shrunk(kId).members == (times == 1 ? std::vector{0, 1, 2} : std::vector{0, 2}));
    if (times == 2) CHECK_THROWS_AS(simulation.logic(1).shrunk(kId), Exception);
  }
}

TEST_CASE("a leader that falls silent in its ballot, where no suspicion ends that, is named by who waits for it") {
  ControlSettings patient;
  patient.liveness = {0, 0};
  int late = 0;
  for (int64_t silent_at = 50; silent_at < 80; ++silent_at) {
    CAPTURE(silent_at);
    Simulation simulation(2, 1, {}, patient);
    simulation.open_everywhere({0, 1});
    for (const int rank : {0, 1}) {
      simulation.at(45, rank, [&](ControlLogic& logic) { logic.shrink(simulation.now(), kId, kPatience, false); });
    }
    simulation.at(silent_at, 1, [&](ControlLogic&) {
      simulation.silence(0, 1);
      simulation.silence(1, 0);
    });
    simulation.run([](int) {}, 60'000);
    REQUIRE(!simulation.logic(1).shrinking(kId));
    try {
      simulation.logic(1).shrunk(kId);
    } catch (const Exception& failure) {
      ++late;
      CHECK(failure.code() == ErrorCode::kTimeout);
      CHECK(failure.error().ranks == std::vector<int>{0});
      CHECK(failure.error().message == "shrink() came to no end: waited for rank 0 (host h, pid 100)");
    }
  }
  CHECK(late > 0);
}

TEST_CASE("who has destroyed the communicator, before or amid a shrink(), is not waited for") {
  for (const int64_t leaves_at : {100, 300}) {
    CAPTURE(leaves_at);
    Simulation simulation(3, 1);
    simulation.open_everywhere({0, 1, 2});
    simulation.at(40, 1, [&](ControlLogic&) { simulation.crash(2); });
    simulation.at(leaves_at, 0, [](ControlLogic& logic) {
      logic.close(kId, 0, {});
      logic.forget(kId);
    });
    simulation.shrink_when_failed(1, 110, kPatience);
    simulation.at(120, 1, [&](ControlLogic& logic) { logic.ended(simulation.now(), 2); });
    simulation.run();
    CHECK(simulation.logic(1).shrunk(kId).members == std::vector<int>{1});
    CHECK(simulation.now() < kPatience);
  }
}

TEST_CASE("who leaves while the others go on waits for no goodbye of theirs, whenever they hear of it") {
  for (const int64_t leaves_at : {30, 95, 105, 125, 160, 250}) {
    for (uint32_t seed = 0; seed < 50; ++seed) {
      CAPTURE(leaves_at);
      CAPTURE(seed);
      Simulation simulation(3, seed);
      simulation.open_everywhere({0, 1, 2});
      simulation.at(leaves_at, 0, [](ControlLogic& logic) { logic.close(kId, 0, {}); });
      // They close as soon as they have agreed, the goodbye on its way or not.
      const auto go_on = [&](const auto& self, int rank, int64_t time) -> void {
        simulation.at(time, rank, [&, rank](ControlLogic& logic) {
          if (logic.shrinking(kId)) return self(self, rank, simulation.now() + 1);
          REQUIRE(logic.shrunk(kId).members == std::vector<int>{1, 2});
          logic.close(kId, 0, {});
          logic.forget(kId);
        });
      };
      for (const int rank : {1, 2}) {
        simulation.at(100, rank, [&](ControlLogic& logic) { logic.shrink(simulation.now(), kId, kPatience, false); });
        go_on(go_on, rank, 101);
      }
      simulation.run();
      CHECK(simulation.logic(0).all_left(kId));
    }
  }
}

}  // namespace
}  // namespace rondo::testing
