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
  CHECK(newest.find(1) == nullptr);
  REQUIRE(newest.find(3) != nullptr);
  CHECK(*newest.find(3) == 30);
}

TEST_CASE("newest: an id that comes again is there, also where its old place in the order is the oldest") {
  Newest<int> newest(1);
  newest[1] = 10;
  newest.take(1);
  newest[1] = 11;
  CHECK(*newest.find(1) == 11);
}

}  // namespace
}  // namespace rondo
