// What is called the best of several ways, and how the choice of the library compares with it.
#include "bench/choice/choice.h"

#include <doctest/doctest.h>

#include "bench/choice/line_transfer.h"
#include "ring/base/cores.h"

namespace rondo::bench::testing {

TEST_CASE("the best is picked in even rounds and judged in odd ones") {
  // Proves: a way that was lucky in even rounds is not taken for that fast.
  const RouteTimes chosen{"auto", {30, 33, 30, 33, 30, 33}};
  const ChoiceVerdict verdict =
      judge_choice(chosen, {{"ring", {50, 10, 50, 10, 50, 10}}, {"direct", {20, 30, 20, 30, 20, 30}}});
  CHECK(verdict.best == "direct");
  CHECK(verdict.best_us == 30);
  CHECK(verdict.chosen_us == 33);
  CHECK(verdict.ratio == doctest::Approx(1.1));
}

TEST_CASE("a disturbed round decides nothing") {
  const RouteTimes chosen{"auto", {30, 900, 30, 33, 30, 33}};
  CHECK(judge_choice(chosen, {{"direct", {20, 30, 700, 30, 20, 30}}}).ratio == doctest::Approx(1.1));
}

TEST_CASE("a cache line takes some time between two cores") {
  const cpu_set_t cores = allowed_cores();
  const double ns = line_transfer_ns();
  CHECK((ns > 0) == (CPU_COUNT(&cores) > 1));  // 0: there is one core
  CHECK(ns < 1e7);
}

}  // namespace rondo::bench::testing
