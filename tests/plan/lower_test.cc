// Plans over registered memory, and by posts, as work for streams: every access is ordered by signals, whichever rank
// is ahead, and nothing waits for ever; a program that lacks any one of the signals that it needs is refused.
#include "ring/plan/lower.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "ring/plan/renumber.h"
#include "ring/plan/verify.h"
#include "tests/plan/check_streams.h"
#include "tests/plan/plans.h"

namespace rondo {
namespace {

std::vector<StreamProgram> lower_all(const std::vector<Plan>& plans) {
  std::vector<StreamProgram> programs;
  for (const Plan& plan : plans) programs.push_back(lower(plan));
  return programs;
}

constexpr Collective kAll[] = {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                               Collective::kBroadcast, Collective::kReduce,        Collective::kGather,
                               Collective::kScatter,   Collective::kAllToAll};
// Those in which every rank needs every other.
constexpr Collective kMutual[] = {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                                  Collective::kAllToAll};

constexpr Algorithm kBoth[] = {Algorithm::kRegistered, Algorithm::kDirect};
std::vector<Plan> island_plans(Collective collective, Algorithm algorithm, int world, int root = 0) {
  return plans_of_all_ranks(request_of(collective, algorithm, one_island_of(world), root));
}

}  // namespace

TEST_CASE("every collective, worlds 2 to 64: all accesses are ordered") {
  for (const Collective collective : kAll) {
    for (const int world : {2, 3, 4, 5, 8, 16, 33, 64}) {
      std::set<int> roots{0};
      if (collective_has_root(collective)) roots.insert({1, world / 2, world - 1});
      for (const int root : roots) {
        for (const Algorithm algorithm : kBoth) {
          const std::vector<Plan> plans = island_plans(collective, algorithm, world, root);
          if (world <= 8) CHECK(verify_values(plans).ok);
          const auto failure = check_streams(plans, lower_all(plans));
          CHECK_MESSAGE(!failure, std::string(collective_name(collective)), " ", std::string(algorithm_name(algorithm)),
                        " world ", world, " root ", root, ": ", failure.value_or(""));
        }
      }
    }
  }
}

TEST_CASE("without any one signal that is awaited a stream waits for ever; without any one wait it is refused") {
  for (const Algorithm algorithm : kBoth) {
    for (const Collective collective : kMutual) {
      const std::vector<Plan> plans = island_plans(collective, algorithm, 3);
      const std::vector<StreamProgram> good = lower_all(plans);
      REQUIRE_FALSE(check_streams(plans, good));
      for (size_t rank = 0; rank < good.size(); ++rank) {
        for (size_t e = 0; e < good[rank].entries.size(); ++e) {
          for (size_t peer = 0; peer < good[rank].entries[e].peers.size(); ++peer) {
            std::vector<StreamProgram> broken = good;
            StreamEntry& entry = broken[rank].entries[e];
            entry.peers.erase(entry.peers.begin() + static_cast<std::ptrdiff_t>(peer));
            const std::string failure = check_streams(plans, broken).value_or("");
            INFO(std::string(collective_name(collective)), " rank ", rank, " entry ", e, " peer ", peer, ": ", failure);
            const bool signal = entry.kind == StreamEntry::Kind::kSignal;
            const char* const without = good[0].posts ? "overwrites a post" : "nothing orders";
            CHECK(failure.find(signal ? "waits for ever" : without) != std::string::npos);
          }
        }
      }
    }
  }
}

TEST_CASE("posts: sent before anything is stored, each by its step; without one its reader waits for ever") {
  const std::vector<Plan> plans = island_plans(Collective::kAllToAll, Algorithm::kDirect, 3);
  const std::vector<StreamProgram> good = lower_all(plans);
  CHECK(good[1].posts);
  for (size_t e = 0; e < good[1].entries.size(); ++e) {
    if (good[1].entries[e].kind == StreamEntry::Kind::kSignal || good[1].entries[e].kind == StreamEntry::Kind::kAwait) {
      continue;
    }
    std::vector<StreamProgram> broken = good;
    broken[1].entries.erase(broken[1].entries.begin() + static_cast<std::ptrdiff_t>(e));
    CHECK(check_streams(plans, broken).value_or("").find("rank 1: the passes") != std::string::npos);
    broken[1].entries.push_back(good[1].entries[e]);
    CHECK((e + 1 == good[1].entries.size()) == !check_streams(plans, broken));
  }
}

// A wait behind what another rank does is a trip over the link. Takes are of posts that go out before the first wait.
TEST_CASE("posts are all out before the only wait, and no signal follows it; over registered memory ranks wait twice") {
  using Kind = StreamEntry::Kind;
  for (const Collective collective : kAll) {
    for (const int world : {2, 8, 64}) {
      for (const Algorithm algorithm : kBoth) {
        for (const StreamProgram& program : lower_all(island_plans(collective, algorithm, world))) {
          INFO(std::string(collective_name(collective)), " ", std::string(algorithm_name(algorithm)), " world ", world);
          const auto& entries = program.entries;
          CHECK(std::ranges::count(entries, Kind::kAwait, &StreamEntry::kind) <= (program.posts ? 1 : 2));
          const auto wait = std::ranges::find(entries, Kind::kAwait, &StreamEntry::kind);
          const bool sends_later = std::any_of(wait, entries.end(), [](const StreamEntry& entry) {
            return entry.kind == Kind::kPost || entry.kind == Kind::kSignal;
          });
          CHECK_FALSE((program.posts && sends_later));
        }
      }
    }
  }
}

namespace {

constexpr Collective kAroundTheRing[] = {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                                         Collective::kBroadcast, Collective::kReduce};

// Plans of all ranks, when they stand in this order.
std::vector<Plan> ring_plans(Collective collective, const std::vector<int>& order, int root) {
  const auto world = static_cast<int>(order.size());
  const auto place = static_cast<int>(std::find(order.begin(), order.end(), root) - order.begin());
  std::vector<Plan> plans(order.size());
  for (const Plan& plan : plans_of_all_ranks(request_of(collective, Algorithm::kRing, one_island_of(world), place))) {
    Plan turned = renumbered(plan, order);
    plans[static_cast<size_t>(turned.rank)] = std::move(turned);
  }
  return plans;
}

}  // namespace

TEST_CASE("the ring, in any order of the ranks: what it promises, and all accesses are ordered") {
  std::mt19937 random(20261124);
  for (const Collective collective : kAroundTheRing) {
    for (const int world : {2, 3, 4, 5, 8, 16, 33, 64}) {
      std::vector<int> order(static_cast<size_t>(world));
      std::iota(order.begin(), order.end(), 0);
      for (const bool shuffled : {false, true}) {
        if (shuffled) std::shuffle(order.begin(), order.end(), random);
        const int root = world / 2;
        INFO(std::string(collective_name(collective)), " world ", world, shuffled ? " shuffled" : "");
        const std::vector<Plan> plans = ring_plans(collective, order, root);
        if (collective_has_root(collective)) CHECK(plans[0].root == root);
        if (world <= 16) {
          const Verdict verdict = verify_values(plans);
          CHECK_MESSAGE(verdict.ok, verdict.failure);
        }
        CHECK(check_streams(plans, lower_all(plans)).value_or("") == "");
      }
    }
  }
}

TEST_CASE("of the ring: without any one wait for a message, or for its place, it is refused") {
  for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather}) {
    const std::vector<Plan> plans = ring_plans(collective, {0, 2, 1, 3, 4}, 0);
    const std::vector<StreamProgram> good = lower_all(plans);
    REQUIRE_FALSE(check_streams(plans, good));
    int removed = 0;
    for (size_t rank = 0; rank < good.size(); ++rank) {
      for (size_t e = 0; e < good[rank].entries.size(); ++e) {
        if (good[rank].entries[e].kind != StreamEntry::Kind::kAwait || good[rank].entries[e].index < kArrivedWord)
          continue;
        std::vector<StreamProgram> broken = good;
        broken[rank].entries.erase(broken[rank].entries.begin() + static_cast<std::ptrdiff_t>(e));
        INFO(std::string(collective_name(collective)), " rank ", rank, " entry ", e);
        CHECK(check_streams(plans, broken).has_value());
        ++removed;
      }
    }
    CHECK(removed >= 20);
  }
}

TEST_CASE("a message in the wrong place is found") {
  const std::vector<Plan> plans = ring_plans(Collective::kAllReduce, {0, 1, 2}, 0);
  std::vector<StreamProgram> programs = lower_all(plans);
  for (StreamEntry& entry : programs[1].entries) {
    if (entry.received == 1) entry.received = 0;
  }
  CHECK(check_streams(plans, programs).has_value());
}

TEST_CASE("plans that need staging memory or links to several ranks are no work for a stream") {
  const auto lowered = [](Algorithm algorithm) {
    return lower(build_plan(request_of(Collective::kAllReduce, algorithm, one_island_of(3))));
  };
  CHECK_THROWS(lowered(Algorithm::kStaged));
  CHECK_THROWS(lowered(Algorithm::kStar));
  CHECK_NOTHROW(lowered(Algorithm::kPull));
  CHECK_NOTHROW(lowered(Algorithm::kDirect));
}

}  // namespace rondo
