// Large jobs lose a third of their ranks at once, and the others agree on themselves in a bounded time: members by the
// agreement alone, and ranks by their whole control planes, which pass messages on. RONDO_RANKS: so many ranks, and
// four times as many members.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <queue>
#include <random>
#include <vector>

#include "tests/fabric/control_simulation.h"
#include "transport/control/membership.h"

namespace rondo::testing {
namespace {

constexpr int64_t kPatience = 10'000;

// Beyond 64 ranks not everybody is a neighbor of everybody.
int ranks_of_job() {
  const char* const ranks = std::getenv("RONDO_RANKS");
  return ranks == nullptr ? 128 : std::atoi(ranks);
}

// Members whose messages take up to 30 ms, as many hops would.
class Members {
 public:
  Members(int size, uint32_t seed) : random_(seed) {
    Membership::Settings settings;
    settings.size = size;
    for (settings.own = 0; settings.own < size; ++settings.own)
      members_.push_back(std::make_unique<Membership>(settings));
  }
  Membership& at(int member) { return *members_[static_cast<size_t>(member)]; }
  bool alive(int member) const { return members_[static_cast<size_t>(member)] != nullptr; }
  int64_t now() const { return now_; }
  int64_t messages() const { return messages_; }

  void kill(int member) { members_[static_cast<size_t>(member)].reset(); }
  void at_random(int64_t within, int member, std::function<void(Membership&)> act) {
    queue_.push(
        {now_ + static_cast<int64_t>(random_() % static_cast<uint32_t>(within)), order_++, member, std::move(act)});
  }
  // Until nothing waits.
  void run() {
    while (!queue_.empty()) {
      const Event event = queue_.top();
      queue_.pop();
      now_ = std::max(now_, event.time);
      if (!alive(event.member)) continue;
      Membership& member = at(event.member);
      event.act(member);
      for (auto& [to, message] : member.take_messages()) {
        ++messages_;
        at_random(30, to, [this, from = event.member, message = message](Membership& other) {
          other.receive(now_, from, message);
        });
      }
      if (const auto next = member.next_time(); next && *next > now_) {
        queue_.push({*next, order_++, event.member, [this](Membership& self) { self.tick(now_); }});
      }
    }
  }

 private:
  struct Event {
    int64_t time = 0;
    uint64_t order = 0;
    int member = 0;
    std::function<void(Membership&)> act;
    bool operator<(const Event& other) const { return std::pair(time, order) > std::pair(other.time, other.order); }
  };
  std::mt19937 random_;
  std::vector<std::unique_ptr<Membership>> members_;
  std::priority_queue<Event> queue_;
  uint64_t order_ = 0;
  int64_t now_ = 0, messages_ = 0;
};

TEST_CASE("members, a third of which have died, agree within a second") {
  const int size = 4 * ranks_of_job();
  Members members(size, 1);
  std::vector<int> dead;
  for (int member = 1; member < size; member += 3) dead.push_back(member), members.kill(member);
  for (int member = 0; member < size; ++member) {
    if (!members.alive(member)) continue;
    // Most are known when a program calls shrink(), some are not.
    for (size_t i = 0; i < dead.size(); ++i) {
      if (i % 100 != 0) members.at(member).lost(0, dead[i]);
      if (i % 100 == 0) members.at_random(100, member, [&, i](Membership& self) { self.lost(members.now(), dead[i]); });
    }
    members.at_random(100, member, [&](Membership& self) { self.join(members.now(), kPatience, false); });
  }
  int64_t decided = 0;
  members.run();
  for (int member = 0; member < size; ++member) {
    if (!members.alive(member)) continue;
    REQUIRE(members.at(member).outcome() == Membership::Outcome::kGoesOn);
    CHECK(members.at(member).decision() == members.at(0).decision());
    decided += members.at(0).decision()->members[static_cast<size_t>(member)];
  }
  CHECK(decided == size - static_cast<int64_t>(dead.size()));
  MESSAGE(decided, " members agree at ", members.now(), " ms, by ", members.messages(), " messages");
  CHECK(members.now() < 1'000);
}

TEST_CASE("control planes beyond 64 ranks, a third of which die at once, agree within seconds") {
  const int world = ranks_of_job();
  Simulation simulation(world, 1, circle_neighbors(world));
  simulation.open_everywhere(all_ranks(world));
  std::vector<int> living;
  for (int rank = 0; rank < world; ++rank) {
    if (rank % 3 == 1) {
      simulation.at(100, rank, [&simulation, rank](ControlLogic&) { simulation.crash(rank); });
    } else {
      living.push_back(rank);
      simulation.shrink_when_failed(rank, 100, kPatience, 20);
    }
  }
  int64_t agreed_at = 0;
  simulation.run([&](int) {
    if (agreed_at == 0 && simulation.now() > 100 && failed(simulation.logic(0), kId) &&
        !simulation.logic(0).shrinking(kId))
      agreed_at = simulation.now();
  });
  for (const int rank : living) {
    CAPTURE(rank);
    REQUIRE(!simulation.logic(rank).shrinking(kId));
    CHECK(simulation.logic(rank).shrunk(kId).members == living);
  }
  MESSAGE(world, " ranks: ", living.size(), " have agreed ", simulation.now() - 100, " ms after ",
          world - static_cast<int>(living.size()), " deaths, in ", simulation.events(), " events");
  CHECK(simulation.now() - 100 < 5'000);
}

}  // namespace
}  // namespace rondo::testing
