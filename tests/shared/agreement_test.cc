// Which ranks share memory follows from all reports alone, and needs both ends of every pair that stands for others.
#include "transport/island/agreement.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <thread>

#include "rondo/error.h"
#include "tests/fabric/cluster.h"
#include "transport/store/memory_store.h"

namespace rondo::testing {
namespace {

using Numbers = std::vector<int>;
using Texts = std::vector<std::string>;

std::vector<Report> reports_of(const Texts& reach) {
  std::vector<Report> reports;
  for (const std::string& text : reach) reports.push_back({text, ""});
  return reports;
}

// On one host.
Classes of_classes(const Numbers& numbers) { return {Numbers(numbers.size(), 0), numbers}; }
Classes all_alike(size_t world) { return of_classes(Numbers(world, 0)); }
Classes all_different(size_t world) {
  Numbers numbers(world);
  std::iota(numbers.begin(), numbers.end(), 0);
  return of_classes(numbers);
}

TEST_CASE(
    "a class tries its two lowest ranks, the lowest of the classes of a host try each other, and both ends know") {
  struct Case {
    const char* what;
    Classes classes;
    std::vector<Numbers> tried;
  };
  const std::vector<Case> cases{
      {"one class", all_alike(5), {{1, 2, 3, 4}, {0, 2, 3, 4}, {0, 1}, {0, 1}, {0, 1}}},
      {"each its own", all_different(4), {{1, 2, 3}, {0, 2, 3}, {0, 1, 3}, {0, 1, 2}}},
      {"two classes", of_classes({0, 1, 0, 1, 0}), {{1, 2, 4}, {0, 3}, {0, 4}, {1}, {0, 2}}},
      {"who cannot share stands for nobody", of_classes({-1, 0, 0, 0}), {{}, {2, 3}, {1, 3}, {1, 2}}},
      {"two hosts", {{0, 0, 1, 1}, {0, 0, 1, 1}}, {{1}, {0}, {3}, {2}}},
      {"alone", of_classes({0}), {{}}},
  };
  for (const Case& one : cases) {
    const std::string what = one.what;
    CAPTURE(what);
    for (size_t rank = 0; rank < one.tried.size(); ++rank) {
      CAPTURE(rank);
      CHECK(tried_by(one.classes, static_cast<int>(rank)) == one.tried[rank]);
    }
  }
}

TEST_CASE("ranks of a class that did not try share what both share with one of its two lowest") {
  struct Case {
    const char* what;
    Classes classes;
    Texts reach;
    Numbers island;
    std::vector<bool> pulls;
  };
  const std::vector<Case> cases{
      {"all", all_alike(4), {".ppp", "p.pp", "pp..", "pp.."}, {0, 0, 0, 0}, {true, true, true, true}},
      {"one pair without pull",
       all_alike(4),
       {".ppp", "p.ps", "pp..", "pp.."},
       {0, 0, 0, 0},
       {false, false, false, false}},
      {"the lowest reaches nobody",
       all_alike(4),
       {"....", "..pp", ".p..", ".p.."},
       {-1, 0, 0, 0},
       {false, true, true, true}},
      {"one in the middle reaches nobody",
       all_alike(4),
       {".p.p", "p..p", "....", "pp.."},
       {0, 0, -1, 0},
       {true, true, false, true}},
      {"two that reach one of the lowest each are apart",
       all_alike(4),
       {".pp.", "p..p", "p...", ".p.."},
       {0, 0, -1, -1},
       {true, true, false, false}},
      {"what was not tried and is said all the same",
       all_alike(4),
       {".p..", "p...", "...p", "..p."},
       {0, 0, -1, -1},
       {true, true, false, false}},
      {"two classes by their lowest",
       of_classes({0, 0, 1, 1}),
       {".pp.", "p...", "p..p", "..p."},
       {0, 0, 0, 0},
       {true, true, true, true}},
      {"two classes apart",
       of_classes({0, 1, 0, 1}),
       {"..p.", "...p", "p...", ".p.."},
       {0, 1, 0, 1},
       {true, true, true, true}},
      {"equal classes of two hosts",
       {{0, 0, 1, 1}, {0, 0, 1, 1}},
       {".ppp", "p.pp", "pp.p", "ppp."},
       {0, 0, 1, 1},
       {true, true, true, true}},
      {"who cannot share", of_classes({0, -1, 0}), {".pp", "p.p", "pp."}, {0, -1, 0}, {true, false, true}},
  };
  for (const Case& one : cases) {
    const std::string what = one.what;
    CAPTURE(what);
    const Islands islands = find_islands(reports_of(one.reach), one.classes);
    CHECK(islands.island == one.island);
    CHECK(islands.pulls == one.pulls);
  }
}

TEST_CASE("the verdict says the first reason that a rank gave") {
  std::vector<Report> reports(3);
  reports[1].why_not = "the first";
  reports[2].why_not = "the second";
  CHECK(find_islands(reports, all_alike(3)).why_not == "the first");
}

TEST_CASE("islands are those that all reached each other, greedily by rank") {
  struct Case {
    const char* what;
    Texts reach;
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
    const Islands islands = find_islands(reports_of(one.reach), all_different(one.reach.size()));
    CHECK(islands.island == one.island);
    CHECK(islands.pulls == one.pulls);
  }
}

TEST_CASE("every rank gets the islands of all reports, in worlds of any size") {
  const std::vector<Texts> worlds{{".ss", "s.p", "sp."}, {"..", ".."}, {"."}, Texts(300, std::string(300, 'p'))};
  for (const Texts& reach : worlds) {
    MemoryStore store;
    std::vector<Report> reports = reports_of(reach);
    reports.back().why_not = std::string(100'000, 'x');
    const Classes classes = all_alike(reports.size());
    std::vector<Islands> got(reports.size());
    in_parallel(static_cast<int>(reports.size()), [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      got[r] = agree_islands(store, rank, reports[r], classes, in(20'000), [] { return false; });
    });
    Islands expected = find_islands(reports, classes);
    expected.why_not.resize(512);
    for (const Islands& one : got) CHECK(one == expected);
  }
}

TEST_CASE("a start that has failed ends the wait for a report, or for the islands, within a second") {
  MemoryStore store;
  for (const int rank : {0, 1}) {
    CAPTURE(rank);
    const auto begin = Clock::now(), failed = begin + std::chrono::milliseconds(1'500);
    try {
      agree_islands(store, rank, {"...", ""}, all_alike(3), in(60'000), [&] { return Clock::now() >= failed; });
      FAIL("it returned");
    } catch (const Exception& failure) {
      CHECK(failure.code() == ErrorCode::kBootstrap);
    }
    CHECK(Clock::now() - failed < std::chrono::seconds(1));
  }
}

}  // namespace
}  // namespace rondo::testing
