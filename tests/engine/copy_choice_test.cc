#include "ring/engine/route/copy_choice.h"

#include <doctest/doctest.h>

#include <set>

namespace rondo::testing {
namespace {

using std::chrono::microseconds;

constexpr uint64_t kMiB = 1 << 20;

// Runs operations as a machine would on which the ways take so long, until nothing is measured any more. Returns what
// was told at the end.
std::string settle(CopyChoice& choice, Collective collective, uint64_t bytes, microseconds staged,
                   microseconds pulled) {
  std::string told;
  int operations = 0;
  while (choice.measures(collective, bytes)) {
    REQUIRE(told == "");
    const bool pulls = choice.way(collective, bytes) == Algorithm::kPull;
    told = choice.learn(collective, bytes, pulls ? pulled : staged);
    REQUIRE(++operations < 100);
  }
  return told;
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
  CHECK(settle(choice, Collective::kBroadcast, kMiB, microseconds(62), microseconds(41)) ==
        "broadcast of 1048576 to 2097151 bytes inside the island: pull from now on (staged 62.0 us, pulled 41.0 us)");
}

TEST_CASE("a choice is made again, and told if it is another one") {
  CopyChoice choice;
  settle(choice, Collective::kAllReduce, kMiB, microseconds(60), microseconds(40));
  CHECK(choice.measures(Collective::kAllGather, kMiB));
  choice.learn(Collective::kAllGather, kMiB, microseconds(50));

  // The trials that go on are not disturbed.
  choice.look_again();
  CHECK(choice.way(Collective::kAllGather, kMiB) == Algorithm::kPull);
  REQUIRE(choice.measures(Collective::kAllReduce, kMiB));
  CHECK(settle(choice, Collective::kAllReduce, kMiB, microseconds(60), microseconds(40)) == "");
  CHECK(choice.way(Collective::kAllReduce, kMiB) == Algorithm::kPull);

  choice.look_again();
  CHECK(settle(choice, Collective::kAllReduce, kMiB, microseconds(60), microseconds(400)) ==
        "all_reduce of 1048576 to 2097151 bytes inside the island: staged from now on (staged 60.0 us, pulled 400.0 "
        "us)");
  CHECK(choice.way(Collective::kAllReduce, kMiB) == Algorithm::kStaged);
}

}  // namespace rondo::testing
