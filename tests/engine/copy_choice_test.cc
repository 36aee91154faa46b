#include "ring/engine/copy_choice.h"

#include <doctest/doctest.h>

#include <set>

namespace rondo::testing {
namespace {

using std::chrono::microseconds;

constexpr uint64_t kMiB = 1 << 20;

// Runs operations as a machine would on which the ways take so long, until nothing is measured any more.
void settle(CopyChoice& choice, Collective collective, uint64_t bytes, microseconds staged, microseconds pulled) {
  int operations = 0;
  while (choice.measures(collective, bytes)) {
    const bool pulls = choice.way(collective, bytes) == Algorithm::kPull;
    choice.learn(collective, bytes, pulls ? pulled : staged);
    REQUIRE(++operations < 100);
  }
}

}  // namespace

TEST_CASE("both ways are tried, and the faster one is kept") {
  CopyChoice choice;
  std::set<Algorithm> tried;
  while (choice.measures(Collective::kAllReduce, kMiB)) {
    const Algorithm way = choice.way(Collective::kAllReduce, kMiB);
    tried.insert(way);
    choice.learn(Collective::kAllReduce, kMiB, microseconds(way == Algorithm::kPull ? 40 : 60));
  }
  CHECK(tried == std::set<Algorithm>{Algorithm::kStaged, Algorithm::kPull});
  CHECK(choice.way(Collective::kAllReduce, kMiB) == Algorithm::kPull);

  CopyChoice other;
  settle(other, Collective::kAllReduce, kMiB, microseconds(40), microseconds(60));
  CHECK(other.way(Collective::kAllReduce, kMiB) == Algorithm::kStaged);
}

TEST_CASE("a disturbed trial decides nothing") {
  // Proves: of each way the fastest trial counts, the first ones, of cold memory, included.
  CopyChoice choice;
  settle(choice, Collective::kAllReduce, kMiB, microseconds(60), microseconds(40));
  CopyChoice disturbed;
  int operations = 0;
  while (disturbed.measures(Collective::kAllReduce, kMiB)) {
    const bool pulls = disturbed.way(Collective::kAllReduce, kMiB) == Algorithm::kPull;
    const bool cold = operations++ < 2;
    disturbed.learn(Collective::kAllReduce, kMiB, microseconds(pulls ? cold ? 5'000 : 40 : 60));
  }
  CHECK(disturbed.way(Collective::kAllReduce, kMiB) == choice.way(Collective::kAllReduce, kMiB));
}

TEST_CASE("each collective and each power of two is measured for itself") {
  CopyChoice choice;
  settle(choice, Collective::kAllReduce, kMiB, microseconds(60), microseconds(40));
  CHECK(!choice.measures(Collective::kAllReduce, 2 * kMiB - 1));
  CHECK(choice.way(Collective::kAllReduce, 2 * kMiB - 1) == Algorithm::kPull);
  CHECK(choice.measures(Collective::kAllReduce, 2 * kMiB));
  CHECK(choice.measures(Collective::kAllReduce, kMiB - 1));
  CHECK(choice.measures(Collective::kAllGather, kMiB));
  CHECK(choice.way(Collective::kAllGather, kMiB) == Algorithm::kStaged);
}

TEST_CASE("the choice is told once, with both figures") {
  CopyChoice choice;
  std::string told;
  while (choice.measures(Collective::kBroadcast, kMiB)) {
    CHECK(told == "");
    const bool pulls = choice.way(Collective::kBroadcast, kMiB) == Algorithm::kPull;
    told = choice.learn(Collective::kBroadcast, kMiB, microseconds(pulls ? 41 : 62));
  }
  CHECK(told ==
        "broadcast of 1048576 to 2097151 bytes inside the island: pull from now on (staged 62.0 us, pulled 41.0 us)");
}

}  // namespace rondo::testing
