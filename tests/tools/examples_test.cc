// Every example ends well under the launcher: each checks its own results.
#include <doctest/doctest.h>

#include <chrono>
#include <string>

#include "tests/support/program.h"

using rondo::test::Program;

TEST_CASE("the examples succeed in worlds 1, 2 and 4, and the first programs know their world") {
  for (const std::string example : {"all_reduce", "all_reduce_c", "ring_sgd"}) {
    for (const int world : {1, 2, 4}) {
      CAPTURE(example);
      CAPTURE(world);
      Program program({"tools/rondo-run", "-n", std::to_string(world), "--timeout", "30", "examples/" + example});
      CHECK(program.wait(std::chrono::seconds(40)) == 0);
      CAPTURE(program.errors());
      const std::string told = example == "ring_sgd" ? ", " + std::to_string(world) + " ranks: the models are the same"
                                                     : "of " + std::to_string(world) + ": every sum is";
      const size_t times = example == "ring_sgd" ? 1 : static_cast<size_t>(world);
      CHECK(rondo::test::count_of(program.output(), told) == times);
    }
  }
}
