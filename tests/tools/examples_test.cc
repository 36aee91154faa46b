// Every example ends well under the launcher, and says so on the ranks that it should: each checks its own results.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <utility>

#include "ring/base/file_text.h"
#include "tests/support/program.h"

using rondo::test::Program;

TEST_CASE("the examples succeed in worlds 1, 2 and 4") {
  // What each prints behind its world, on all ranks.
  const std::pair<std::string, std::string> examples[] = {
      {"all_reduce", ": every sum is"},
      {"all_reduce_c", ": every sum is"},
      {"overlap", ": 8 sums done while computing"},
  };
  for (const auto& each : examples) {
    const std::string &example = each.first, &told = each.second;
    for (const int world : {1, 2, 4}) {
      CAPTURE(example);
      CAPTURE(world);
      Program program({"tools/rondo-run", "-n", std::to_string(world), "--timeout", "30", "examples/" + example});
      CHECK(program.wait(std::chrono::seconds(40)) == 0);
      CAPTURE(program.errors());
      CHECK(rondo::test::count_of(program.output(), told) == static_cast<size_t>(world));
      CHECK(rondo::test::count_of(program.output(), std::to_string(world)) >= static_cast<size_t>(world));
    }
  }
}

TEST_CASE("messages prints what is written down for 4 ranks") {
  Program program({"tools/rondo-run", "-n", "4", "--no-prefix", "--timeout", "30", "examples/messages"});
  CHECK(program.wait(std::chrono::seconds(40)) == 0);
  CAPTURE(program.errors());
  const std::string expected = rondo::file_text("examples/messages.txt");
  CHECK(!expected.empty());
  CHECK(rondo::test::sorted_lines(program.output()) == rondo::test::sorted_lines(expected));
}
