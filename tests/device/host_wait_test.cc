// A thread that waits in a stream's place for a GPU's round trip does not sleep: its wake-up takes ten round trips.
#include "ring/engine/device/host_wait.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

namespace rondo::testing {

TEST_CASE("waits of 30 us do not sleep, those of 2 ms do") {
  using Clock = std::chrono::steady_clock;
  constexpr int kRounds = 100;
  const auto sleeps_in = [](std::chrono::microseconds wait, int& looks) {
    rusage before{}, after{};
    getrusage(RUSAGE_THREAD, &before);
    for (int round = 0; round < kRounds; ++round) {
      const auto until = Clock::now() + wait;
      wait_on_host([&] { return Clock::now() >= until; }, [&] { ++looks; });
    }
    getrusage(RUSAGE_THREAD, &after);
    return after.ru_nvcsw - before.ru_nvcsw;
  };
  int looks = 0;
  CHECK(sleeps_in(std::chrono::microseconds(30), looks) < kRounds / 4);
  CHECK(looks < kRounds / 4);  // where a process took the core for a while
  CHECK(sleeps_in(std::chrono::microseconds(2000), looks) > kRounds);
  CHECK(looks > kRounds);
}

}  // namespace rondo::testing
