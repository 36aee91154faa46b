#include "tools/plan/choices.h"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

namespace rondo {

TEST_CASE("docs/plans.md has the table of choices that the tool prints") {
  std::ifstream file("docs/plans.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  REQUIRE(!page.empty());
  const std::string table = choices();
  INFO("put the output of bazel run //tools/plan:plan_choices into docs/plans.md:\n" << table);
  CHECK(page.find(table) != std::string::npos);
}

TEST_CASE("the table of choices follows the model: where messages cost nothing, many ranks need no trees") {
  CostModel model;
  for (PairCost* pair : {&model.memory, &model.loopback, &model.network}) pair->alpha_us = pair->message_us = 0;
  CHECK_NE(choices(model), choices());
  CHECK_EQ(choices(model).find("doubling to 32 KiB"), std::string::npos);
}

}  // namespace rondo
