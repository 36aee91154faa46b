#include "bench/output/steal.h"

#include <doctest/doctest.h>

#include <sstream>

namespace rondo::bench {
namespace {

ProcessorTicks of(const char* text) {
  std::istringstream in(text);
  return read_ticks(in);
}

TEST_CASE("the line of all processors is read; guests, who are in user already, are not added again") {
  const ProcessorTicks ticks = of("cpu  100 2 30 400 5 6 7 50 90 1\ncpu0 50 1 15 200 2 3 3 25 45 0\n");
  CHECK(ticks.total == 600);
  CHECK(ticks.steal == 50);
}

TEST_CASE("what is no such line is no time at all") {
  for (const char* text : {"", "cpu", "cpu 1 2 3 4 5 6 7\n", "cpu 1 2 three 4 5 6 7 8\n", "cpu0 1 2 3 4 5 6 7 8\n"}) {
    CAPTURE(text);
    CHECK(of(text).total == 0);
    CHECK(of(text).steal == 0);
  }
}

TEST_CASE("the share is of the time between; no time, or a clock that went back, is none") {
  CHECK(steal_share({600, 50}, {1000, 150}) == doctest::Approx(0.25));
  CHECK(steal_share({600, 50}, {1000, 50}) == 0);
  CHECK(steal_share({600, 50}, {600, 50}) == 0);
  CHECK(steal_share({1000, 150}, {600, 50}) == 0);
}

TEST_CASE("this machine's time passes") {
  const ProcessorTicks before = ticks_now();
  REQUIRE(before.total > 0);
  CHECK(before.steal < before.total);
  CHECK(ticks_now().total >= before.total);
}

}  // namespace
}  // namespace rondo::bench
