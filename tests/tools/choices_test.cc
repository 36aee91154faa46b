#include "tests/tools/choices.h"

#include <doctest/doctest.h>

#include <string>

#include "ring/base/file_text.h"

namespace rondo {

TEST_CASE("a change of what is chosen shows in choices.txt") {
  INFO("if it is wanted: bazel run //tests/tools:plan_choices > tests/tools/choices.txt");
  CHECK_EQ(file_text("tests/tools/choices.txt"), choices());
}

TEST_CASE("the table of choices follows the model: where messages cost nothing, many ranks need no trees") {
  CostModel model;
  for (PairCost* pair : {&model.memory, &model.loopback, &model.network}) pair->alpha_us = pair->message_us = 0;
  CHECK_NE(choices(model), choices());
  CHECK_EQ(choices(model).find("doubling to 32 KiB"), std::string::npos);
}

}  // namespace rondo
