// Which ranks share memory follows from all reports alone, and needs both ends of every pair.
#include "transport/island/agreement.h"

#include <doctest/doctest.h>

#include <memory>
#include <thread>

#include "rondo/error.h"
#include "tests/fabric/cluster.h"
#include "transport/store/memory_store.h"

namespace rondo::testing {
namespace {

using Numbers = std::vector<int>;

TEST_CASE("islands are those that all reached each other, greedily by rank") {
  struct Case {
    const char* what;
    std::vector<Report> reports;
    Numbers island;
    std::vector<bool> pulls;
  };
  const std::vector<Case> cases{
      {"nobody", {"...", "...", "..."}, {}, {false, false, false}},
      {"all, with pull", {".pp", "p.p", "pp."}, {0, 0, 0}, {true, true, true}},
      {"one pair without pull takes it from all", {".pp", "p.p", "ps."}, {0, 0, 0}, {false, false, false}},
      {"one end alone is not enough", {".s.", "...", "..."}, {}, {false, false, false}},
      {"two islands, in order of first appearance",
       {"..p.s", "...p.", "p...s", ".p...", "s.s.."},
       {0, 1, 0, 1, 0},
       {false, true, false, true, false}},
      {"2 reaches 1 but not 0, who took 1", {".s.", "s.s", ".s."}, {0, 0, -1}, {false, false, false}},
      {"malformed letters and short reports are no reach", {"zzz", "s", ""}, {}, {false, false, false}},
  };
  for (const Case& one : cases) {
    const std::string what = one.what;
    CAPTURE(what);
    const Islands islands = find_islands(one.reports);
    CHECK(islands.island == one.island);
    CHECK(islands.pulls == one.pulls);
  }
}

TEST_CASE("every rank gets the islands of all reports, in worlds of any size") {
  const std::vector<std::vector<Report>> worlds{
      {".ss", "s.p", "sp."}, {"..", ".."}, {"."}, std::vector(300, Report(300, 'p'))};
  for (const std::vector<Report>& reports : worlds) {
    MemoryStore store;
    std::vector<Islands> got(reports.size());
    in_parallel(static_cast<int>(reports.size()), [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      got[r] = agree_islands(store, rank, reports[r], in(20'000), [](int) { return false; });
    });
    for (const Islands& one : got) CHECK(one == find_islands(reports));
  }
}

TEST_CASE("a rank that dies before it reports is named on those that wait for it, at once") {
  MemoryStore store;
  const auto begin = Clock::now();
  try {
    agree_islands(store, 0, "...", in(60'000), [](int rank) { return rank == 1; });
    FAIL("it returned");
  } catch (const Exception& failure) {
    CHECK(failure.code() == ErrorCode::kPeerLost);
    CHECK(failure.error().ranks == Numbers{1});
  }
  CHECK(Clock::now() - begin < std::chrono::seconds(5));
}

}  // namespace
}  // namespace rondo::testing
