#include "transport/control/start_logic.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>

#include "transport/control/control_logic.h"

namespace rondo {
namespace {

constexpr uint64_t kId = 1;
constexpr int64_t kMaxDelay = 30;   // milliseconds, for a message or for one end of a connection
constexpr int64_t kPatience = 800;  // until nobody's listening counts as a death, as in dial.cc

// Ranks that connect to each other in one thread and a made-up time, and open a communicator once they are connected.
// A rank whose start or communicator has failed leaves as ControlPlane does: it keeps listening while there is somebody
// to be told, then closes its connections.
class Simulation {
 public:
  Simulation(int world, uint32_t seed) : world_(world), random_(seed), ranks_(static_cast<size_t>(world)) {
    std::vector<std::string> names;
    for (int rank = 0; rank < world; ++rank) names.push_back(fmt::format("host h, pid {}", 100 + rank));
    for (int rank = 0; rank < world; ++rank) {
      std::vector<int> others = everybody();
      std::erase(others, rank);
      at(rank).start = std::make_unique<StartLogic>(StartLogic::Settings{rank, names, others});
      ControlSettings settings;
      settings.rank = rank;
      settings.names = names;
      settings.neighbors = others;
      at(rank).control = std::make_unique<ControlLogic>(settings);
      for (int peer = 0; peer < rank; ++peer) post(delay(), [this, rank, peer] { dial(rank, peer, -1); });
    }
  }

  // Connections from the higher to the lower are refused, though both live.
  void part(int higher, int lower) { parted_ = {higher, lower}; }
  void crash(int rank) {
    if (!at(rank).gone) close(rank);
  }

  // `before` runs before each event, with its index.
  void run(const std::function<void(int)>& before) {
    int index = 0;
    while (!queue_.empty()) {
      before(index++);
      const auto next = queue_.begin();
      now_ = next->first.first;
      const auto event = std::move(next->second);
      queue_.erase(next);
      event();
      for (int rank = 0; rank < world_; ++rank) settle(rank);
    }
  }

  // What join() reports: nullptr where all is well.
  const Error* outcome(int rank) {
    if (at(rank).start->phase() == StartLogic::Phase::kFailed) return &at(rank).start->error();
    return at(rank).failure ? &*at(rank).failure : nullptr;
  }
  bool done(int rank) { return at(rank).start->phase() == StartLogic::Phase::kDone; }

 private:
  struct Rank {
    std::unique_ptr<StartLogic> start;
    std::unique_ptr<ControlLogic> control;
    std::optional<Error> failure;
    std::set<int> connected;
    bool listens = true;
    bool opened = false;
    bool leaves = false;
    bool gone = false;
  };

  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  std::vector<int> everybody() const {
    std::vector<int> ranks(static_cast<size_t>(world_));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  int64_t delay() { return static_cast<int64_t>(random_() % static_cast<uint32_t>(kMaxDelay)); }
  void post(int64_t wait, std::function<void()> event) {
    queue_.emplace(std::pair(now_ + wait, order_++), std::move(event));
  }
  // In order between two ranks.
  void send(int from, int to, std::function<void()> event) {
    int64_t& last = last_arrival_[{from, to}];
    last = std::max(last, now_ + delay());
    post(last - now_, std::move(event));
  }

  void dial(int rank, int peer, int64_t refused_since) {
    if (at(rank).gone) return;
    if (at(peer).listens && parted_ != std::pair{rank, peer}) {
      connect(peer, rank);
      send(peer, rank, [this, rank, peer] { connect(rank, peer); });
    } else {
      refused(rank, peer, refused_since, &Simulation::dial);
    }
  }
  // The lower rank looks whether the higher one, which should dial it, still listens.
  void probe(int rank, int peer, int64_t refused_since) {
    if (at(rank).gone || at(rank).start->missing().count(peer) == 0 || at(peer).listens) return;
    refused(rank, peer, refused_since, &Simulation::probe);
  }
  void refused(int rank, int peer, int64_t since, void (Simulation::*again)(int, int, int64_t)) {
    if (since < 0) since = now_;
    if (now_ - since >= kPatience) return at(rank).start->unreached(now_, peer, "nobody listens");
    post(20 + delay(), [=, this] { (this->*again)(rank, peer, since); });
  }

  void connect(int rank, int peer) {
    if (at(rank).gone) return;
    at(rank).connected.insert(peer);
    at(rank).start->connected(peer);
    // The other end was closed before this one learned that it was made.
    if (at(peer).gone) send(peer, rank, [this, rank, peer] { ended(rank, peer); });
  }
  void ended(int rank, int peer) {
    if (at(rank).gone || at(rank).connected.erase(peer) == 0) return;
    at(rank).control->connection_ended(now_, peer, "the connection was closed");
    at(rank).start->lost(now_, peer, "the connection was closed");
  }
  void close(int rank) {
    at(rank).gone = true;
    at(rank).listens = false;
    for (const int peer : everybody()) {
      if (at(peer).connected.count(rank)) send(rank, peer, [this, rank, peer] { ended(peer, rank); });
    }
    for (int peer = 0; peer < rank; ++peer) post(500, [this, rank, peer] { probe(peer, rank, -1); });
  }

  void say(int from, int to, const ControlBody& body) {
    send(from, to, [this, from, to, body] {
      Rank& rank = at(to);
      if (rank.gone || rank.connected.count(from) == 0) return;
      const auto* abort = std::get_if<AbortMessage>(&body);
      if (abort && abort->communicator == 0 && rank.start->phase() != StartLogic::Phase::kDone) {
        return rank.start->gave_up(from, abort->error);
      }
      const auto* lost = std::get_if<LostMessage>(&body);
      if (lost && lost->fate == LostMessage::Fate::kUnreached) return ask(to, static_cast<int>(lost->rank), from);
      if (abort && abort->communicator != 0) rank.start->failed_later(from, abort->error);
      rank.control->receive(now_, from, body);
    });
  }

  void ask(int rank, int about, int by) {
    if (done(rank)) return at(rank).control->unreached(now_, about, by, "nobody listens");
    at(rank).start->asked(about, by, "nobody listens");
  }

  void settle(int index) {
    Rank& rank = at(index);
    if (rank.gone) return;
    rank.start->tick(now_);
    rank.control->tick(now_);
    for (const auto& due : {rank.start->next_time(), rank.control->next_time()}) {
      if (due && *due > now_ && timers_.insert({index, *due}).second) post(*due - now_, [] {});
    }
    for (const auto& [peer, message] : rank.start->take_messages()) say(index, peer, message);
    if (rank.start->phase() == StartLogic::Phase::kDone && !rank.opened) open(index);
    carry_out(index);
    leave(index);
    carry_out(index);
  }

  void carry_out(int index) {
    Rank& rank = at(index);
    for (control::Action& action : rank.control->take_actions()) {
      if (auto* sent = std::get_if<control::Send>(&action)) say(index, sent->peer, sent->body);
      if (auto* fail = std::get_if<control::Fail>(&action)) rank.failure = fail->error;
      if (std::get_if<control::PeerLeft>(&action)) CHECK(rank.failure);  // else it would be taken for the cause
    }
  }

  void open(int index) {
    at(index).opened = true;
    post(delay(), [this, index] {
      if (!at(index).gone) at(index).control->open(now_, kId, everybody());
    });
  }

  void leave(int index) {
    Rank& rank = at(index);
    if (outcome(index) == nullptr || rank.leaves || !rank.start->untold().empty()) return;
    rank.leaves = true;
    if (rank.failure) {
      rank.control->close(kId, 1, {});
      rank.control->leave();
    }
    post(delay(), [this, index] { close(index); });
  }

  const int world_;
  std::pair<int, int> parted_{-1, -1};
  std::mt19937 random_;
  std::vector<Rank> ranks_;
  std::map<std::pair<int64_t, uint64_t>, std::function<void()>> queue_;
  std::map<std::pair<int, int>, int64_t> last_arrival_;
  std::set<std::pair<int, int64_t>> timers_;
  uint64_t order_ = 0;
  int64_t now_ = 0;
};

TEST_CASE("a crash at every event of a start: every survivor ends, and blames the dead rank only") {
  int while_starting = 0, afterwards = 0;
  for (int world = 2; world <= 6; ++world) {
    for (int victim = 0; victim < world; ++victim) {
      for (uint32_t seed = 0; seed < 20; ++seed) {
        for (int moment = 0; moment < 2 * world * world; moment += world <= 4 ? 1 : 3) {
          CAPTURE(world);
          CAPTURE(victim);
          CAPTURE(seed);
          CAPTURE(moment);
          Simulation simulation(world, seed);
          bool crashed = false;
          simulation.run([&](int event) {
            if (event != moment) return;
            crashed = true;
            simulation.crash(victim);
          });
          if (!crashed) continue;  // all was quiet before
          for (int rank = 0; rank < world; ++rank) {
            if (rank == victim) continue;
            CAPTURE(rank);
            const Error* error = simulation.outcome(rank);
            REQUIRE(error != nullptr);
            CAPTURE(error->message);
            CHECK(error->code == ErrorCode::kPeerLost);
            CHECK(error->ranks == std::vector<int>{victim});
            ++(simulation.done(rank) ? afterwards : while_starting);
          }
        }
      }
    }
  }
  // Both kinds of end are met.
  CHECK(while_starting > 1000);
  CHECK(afterwards > 1000);
}

TEST_CASE("two ranks that do not reach each other, in any order: NETWORK on every rank, both named, nobody dead") {
  for (int world = 3; world <= 6; ++world) {
    for (int higher = 1; higher < world; ++higher) {
      for (int lower = 0; lower < higher; ++lower) {
        for (uint32_t seed = 0; seed < 50; ++seed) {
          CAPTURE(world);
          CAPTURE(higher);
          CAPTURE(lower);
          CAPTURE(seed);
          Simulation simulation(world, seed);
          simulation.part(higher, lower);
          simulation.run([](int) {});
          for (int rank = 0; rank < world; ++rank) {
            CAPTURE(rank);
            const Error* error = simulation.outcome(rank);
            REQUIRE(error != nullptr);
            CAPTURE(error->message);
            CHECK(error->code == ErrorCode::kNetwork);
            CHECK(error->ranks == std::vector<int>{lower, higher});
          }
        }
      }
    }
  }
}

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
