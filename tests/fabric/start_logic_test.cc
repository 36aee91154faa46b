// The steps of one rank's start, and what is heard of a start that failed. Whole starts, in which a rank dies or two do
// not reach each other: tests/simulation.
#include "transport/control/start_logic.h"

#include <doctest/doctest.h>

#include <limits>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "transport/control/control_logic.h"

namespace rondo {
namespace {

// Whom it sends its error.
std::vector<int> told(StartLogic& start) {
  std::vector<int> peers;
  for (const auto& [peer, message] : start.take_messages()) {
    if (std::holds_alternative<AbortMessage>(message)) peers.push_back(peer);
  }
  return peers;
}

StartLogic start_of(int rank, int world) {
  StartLogic::Settings settings;
  settings.rank = rank;
  for (int peer = 0; peer < world; ++peer) {
    settings.names.push_back("h");
    if (peer != rank) settings.neighbors.push_back(peer);
  }
  return StartLogic(settings);
}

TEST_CASE("the end of a connection waits for a better reason, and deaths that are close together are one error") {
  StartLogic better = start_of(0, 4);
  better.connected(1);
  better.lost(10, 1, "closed");
  CHECK(better.next_time() == 110);
  better.gave_up(3, {ErrorCode::kPeerLost, "rank 2 died", {2}});
  CHECK(better.error().ranks == std::vector<int>{2});
  CHECK(better.error().message == "rank 2 died");

  StartLogic both = start_of(0, 4);
  both.lost(10, 1, "closed");
  both.lost(90, 2, "refused");
  both.connected(3);
  both.tick(109);
  CHECK(both.phase() == StartLogic::Phase::kRunning);
  both.tick(110);
  CHECK(both.phase() == StartLogic::Phase::kFailed);
  CHECK(both.error().ranks == std::vector<int>{1, 2});
  CHECK(both.error().message ==
        "rank 1 (h) died while the group was starting (closed); rank 2 (h) died while the group was starting "
        "(refused)");
  CHECK(told(both) == std::vector<int>{3});
}

TEST_CASE("at the last tick of a start a rank that nobody has vouched for is dead, without an overflow of time") {
  StartLogic start = start_of(0, 3);
  start.connected(1);
  start.unreached(10, 2, "refused");
  CHECK(start.phase() == StartLogic::Phase::kRunning);
  start.tick(std::numeric_limits<StartLogic::Time>::max());
  CHECK(start.phase() == StartLogic::Phase::kFailed);
  CHECK(start.error().code == ErrorCode::kPeerLost);
  CHECK(start.error().ranks == std::vector<int>{2});
}

TEST_CASE("who is asked about a rank that it reaches, or about itself, says that there is no way between the two") {
  for (const int peer : {0, 1}) {
    CAPTURE(peer);
    StartLogic asked = start_of(1, 4);
    asked.connected(0);
    asked.asked(3, 2, "refused");  // rank 1 is not connected to rank 3: it cannot answer
    CHECK(asked.phase() == StartLogic::Phase::kRunning);
    asked.asked(peer, 2, "refused");
    CHECK(asked.error().code == ErrorCode::kNetwork);
    CHECK(asked.error().ranks == std::vector<int>{peer, 2});
    CHECK(told(asked) == std::vector<int>{0});
  }
}

TEST_CASE("a rank that gives up for no other's fault is the culprit; one that was past its start says why it ended") {
  StartLogic own = start_of(0, 3);
  own.gave_up(1, {ErrorCode::kSystem, "out of descriptors", {}});
  CHECK(own.error().ranks == std::vector<int>{1});
  CHECK(own.error().message == "rank 1 (h) gave up its start: out of descriptors");

  StartLogic accused = start_of(0, 3);
  accused.gave_up(1, {ErrorCode::kPeerLost, "rank 0 died", {0}});
  CHECK(accused.error().code == ErrorCode::kNetwork);  // it lives
  CHECK(accused.error().ranks == std::vector<int>{1});

  StartLogic later = start_of(0, 3);
  later.connected(1);
  later.failed_later(1, {ErrorCode::kPeerLost, "rank 2 died", {2}});
  CHECK(later.phase() == StartLogic::Phase::kRunning);
  later.lost(5, 1, "closed");
  CHECK(later.error().ranks == std::vector<int>{2});
}

TEST_CASE("after a failure those that are not connected are to be told still, but for the culprits") {
  StartLogic start = start_of(1, 5);
  start.connected(0);
  CHECK(start.untold().empty());
  start.fail({ErrorCode::kPeerLost, "rank 2 died", {2}});
  CHECK(told(start) == std::vector<int>{0});
  CHECK(start.untold() == std::set<int>{3, 4});
  start.connected(4);
  CHECK(told(start) == std::vector<int>{4});
  start.lost(0, 3, "refused");
  CHECK(start.untold().empty());
  CHECK(start.error().ranks == std::vector<int>{2});
}

TEST_CASE("a failed start that is heard of after one's own blames the ranks that it names, not who tells of it") {
  ControlSettings settings;
  settings.rank = 0;
  settings.names = {"a", "b", "c", "d"};
  settings.neighbors = {1, 2, 3};
  for (const bool open_before : {false, true}) {
    CAPTURE(open_before);
    ControlLogic logic(settings);
    if (open_before) logic.open(0, 7, {0, 1, 2, 3});
    if (open_before) logic.open(0, 8, {0, 1, 3});
    logic.receive(1, 1, AbortMessage{0, Stage::kMaking, {ErrorCode::kPeerLost, "rank 2 died", {2}}});
    logic.connection_ended(2, 1, "closed");
    CHECK(logic.departures().gone(1));
    CHECK(logic.departures().gone(2));
    CHECK(!logic.departures().gone(3));
    if (!open_before) logic.open(3, 7, {0, 1, 2, 3});
    if (!open_before) logic.open(3, 8, {0, 1, 3});
    logic.tick(100);
    std::map<uint64_t, std::vector<int>> failures;
    for (const auto& action : logic.take_actions()) {
      if (const auto* fail = std::get_if<control::Fail>(&action)) failures[fail->communicator] = fail->error.ranks;
      if (const auto* send = std::get_if<control::Send>(&action)) CHECK(send->peer == 3);
    }
    // Without the culprit among its members, a group has lost the one that gave up.
    CHECK(failures == std::map<uint64_t, std::vector<int>>{{7, {2}}, {8, {1}}});
  }
}

TEST_CASE("a start that failed though nobody died is no death to those that were done, and keeps its code and ranks") {
  ControlSettings settings;
  settings.rank = 0;
  settings.names = {"a", "b", "c"};
  settings.neighbors = {1, 2};
  for (const bool open_before : {false, true}) {
    CAPTURE(open_before);
    ControlLogic logic(settings);
    if (open_before) logic.open(0, 7, {0, 1, 2});
    logic.receive(1, 1, AbortMessage{0, Stage::kMaking, {ErrorCode::kNetwork, "no way", {1, 2}}});
    logic.connection_ended(2, 1, "closed");
    CHECK(logic.departures().start_failure()->code == ErrorCode::kNetwork);
    if (!open_before) logic.open(3, 7, {0, 1, 2});
    std::optional<Error> failure;
    std::set<int> told;
    for (const auto& action : logic.take_actions()) {
      if (const auto* fail = std::get_if<control::Fail>(&action)) failure = fail->error;
      if (const auto* send = std::get_if<control::Send>(&action)) told.insert(send->peer);
    }
    REQUIRE(failure);
    CHECK(failure->code == ErrorCode::kNetwork);
    CHECK(failure->message == "no way");
    CHECK(failure->ranks == std::vector<int>{1, 2});
    CHECK(told == std::set<int>{2});
  }
}

}  // namespace
}  // namespace rondo
