#include "ring/engine/progress/vain_polls.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>

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

using std::chrono::nanoseconds;
using Next = VainPolls::Next;

constexpr WaitPolicy kOwnCore{microseconds(200), false, 0};

// A thread that polls in vain: each poll takes `poll`, each yield `yield`.
struct Poller {
  explicit Poller(WaitPolicy policy) : polls(policy) {}

  // Until it would sleep.
  void run() {
    polls.begin();
    const Clock::time_point begin = now;
    while (true) {
      now += poll;
      if (!polls.vain()) continue;
      ++looks;
      const Next next = polls.next(now);
      if (next == Next::kSleep) break;
      if (next == Next::kPoll) continue;
      if (yields++ == 0) first_yield = now - begin;
      polls.yielded(now, now + yield);
      now += yield;
      if (one_yield) return;
    }
    polled = now - begin;
  }

  VainPolls polls;
  nanoseconds poll{25};
  nanoseconds yield{300};
  bool one_yield = false;  // and return
  Clock::time_point now{std::chrono::hours(1)};
  int looks = 0, yields = 0;
  Clock::duration first_yield{0}, polled{0};
};

}  // namespace

TEST_CASE("on a core of its own a thread yields after 2 us, rarely again, and polls for its whole time") {
  Poller poller(kOwnCore);
  poller.run();
  CHECK(poller.first_yield >= microseconds(1));
  CHECK(poller.first_yield <= microseconds(3));
  CHECK(poller.yields <= 9);
  CHECK(poller.polled >= kOwnCore.spin);
  CHECK(poller.polled <= kOwnCore.spin + microseconds(5));
}

TEST_CASE("polls over sockets take longer: there, too, the first yield comes after some 2 us") {
  Poller poller(kOwnCore);
  poller.poll = nanoseconds(700);
  for (int wait = 0; wait < 3; ++wait) poller.run();  // it learns how long a poll takes
  poller.yields = 0;
  poller.run();
  CHECK(poller.first_yield <= nanoseconds(3500));
  poller.poll = nanoseconds(25);
  for (int wait = 0; wait < 3; ++wait) poller.run();
  poller.looks = 0;
  poller.run();
  CHECK(poller.looks < 350);  // and the clock is not read after each short poll for ever
}

TEST_CASE("where another rank runs in a yield, the next yield comes as soon, and what moves then came by it") {
  Poller poller(kOwnCore);
  poller.yield = microseconds(3);
  poller.run();
  CHECK(poller.yields >= 30);
  poller.one_yield = true;
  poller.run();
  CHECK(poller.polls.moved());
  CHECK(!poller.polls.moved());
  poller.yield = nanoseconds(300);
  poller.run();
  CHECK(!poller.polls.moved());
}

TEST_CASE("beside a process that computes a thread with a core of its own does not yield for a while, and polls") {
  Poller poller(kOwnCore);
  poller.yield = milliseconds(3);
  poller.one_yield = true;
  poller.run();
  const int before = poller.yields;
  poller.run();
  CHECK(poller.yields == before);
  CHECK(poller.polled >= kOwnCore.spin);
}

TEST_CASE("with more ranks than cores every vain poll ends in a yield") {
  Poller poller({microseconds(200), true, -1});
  poller.poll = nanoseconds(500);
  poller.yield = microseconds(10);
  poller.run();
  CHECK(poller.looks == poller.yields + 1);
  CHECK(poller.yields >= 19);
}

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
