// What is called the best of several ways, and how the choice of the library compares with it.
#include "tests/lab/choice/choice.h"

#include <doctest/doctest.h>

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

}  // namespace rondo::bench::testing
