#include "ring/base/newest.h"

#include <doctest/doctest.h>

namespace rondo {
namespace {

TEST_CASE("newest: beyond its bound the oldest is forgotten, and what was taken is no more there") {
  Newest<int> newest(2);
  newest[1] = 10;
  newest[2] = 20;
  newest[1] = 11;  // no younger by that
  CHECK(newest.take(2) == 20);
  CHECK_FALSE(newest.has(2));
  CHECK(newest.take(2) == 0);
  newest[3] = 30;
  CHECK(newest.has(1));
  newest[4] = 40;
  CHECK(newest.find(1) == nullptr);
  REQUIRE(newest.find(3) != nullptr);
  CHECK(*newest.find(3) == 30);
}

TEST_CASE("newest: an id that comes again is as young as one that is new") {
  Newest<int> newest(2);
  newest[1] = 10;
  newest.take(1);
  newest[1] = 11;
  newest[2] = 20;
  CHECK(newest.has(1));
  newest[3] = 30;
  CHECK_FALSE(newest.has(1));
  CHECK(newest.has(2));
}

}  // namespace
}  // namespace rondo
