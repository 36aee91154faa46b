#include "ring/engine/progress/wait_policy.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace rondo::testing {
namespace {

using Clock = YieldBackoff::Clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// A yield that begins at `at` and lasts so long. Returns its end.
Clock::time_point yield(YieldBackoff& yields, Clock::time_point at, Clock::duration lasts) {
  yields.yielded(at, at + lasts);
  return at + lasts;
}

}  // namespace

TEST_CASE("cheap yields go on") {
  YieldBackoff yields;
  Clock::time_point now{std::chrono::hours(1)};
  CHECK(!yields.sleep_instead(now));
  for (int i = 0; i < 1000; ++i) {
    now = yield(yields, now, microseconds(1 + i));
    CHECK(!yields.sleep_instead(now));
  }
}

TEST_CASE("one dear yield costs as much again in sleeps, and no more") {
  YieldBackoff yields;
  const auto now = yield(yields, Clock::time_point{std::chrono::hours(1)}, milliseconds(3));
  CHECK(yields.sleep_instead(now));
  CHECK(yields.sleep_instead(now + microseconds(2999)));
  CHECK(!yields.sleep_instead(now + milliseconds(3)));
}

TEST_CASE("sleeps end a pause, too, before its time is over") {
  YieldBackoff yields;
  Clock::time_point now{std::chrono::hours(1)};
  int pause = YieldBackoff::kFewestSleeps;
  for (int i = 0; i < 5; ++i) {
    now = yield(yields, now, milliseconds(50));
    for (int sleep = 0; sleep < pause; ++sleep) {
      REQUIRE(yields.sleep_instead(now));
      yields.slept();
    }
    CHECK(!yields.sleep_instead(now));
    yields.slept();
    CHECK(!yields.sleep_instead(now));
    pause = std::min(8 * pause, YieldBackoff::kMostSleeps);
  }
}

TEST_CASE("beside a process that always computes, yields become a small part of the time") {
  YieldBackoff yields;
  const Clock::time_point start{std::chrono::hours(1)};
  Clock::time_point now = start;
  Clock::duration yielding{0};
  while (now < start + std::chrono::seconds(10)) {
    if (yields.sleep_instead(now)) {
      now += microseconds(100);
      yields.slept();
    } else {
      now = yield(yields, now, milliseconds(4));
      yielding += milliseconds(4);
    }
  }
  CHECK(yielding < (now - start) / 40);
}

TEST_CASE("dear yields far from each other do not add up") {
  YieldBackoff yields;
  Clock::time_point now{std::chrono::hours(1)};
  for (int i = 0; i < 20; ++i) {
    now = yield(yields, now + milliseconds(200), milliseconds(3));
    CHECK(yields.sleep_instead(now));
    CHECK(!yields.sleep_instead(now + milliseconds(4)));
  }
}

TEST_CASE("no yields are left out for longer than the bound") {
  YieldBackoff yields;
  Clock::time_point now{std::chrono::hours(1)};
  for (int i = 0; i < 10; ++i) {
    now = yield(yields, now, std::chrono::seconds(5));
    CHECK(yields.sleep_instead(now + YieldBackoff::kLongest - microseconds(1)));
    now += YieldBackoff::kLongest;
    CHECK(!yields.sleep_instead(now));
  }
}

}  // namespace rondo::testing
