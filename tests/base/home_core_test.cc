// Waiting may move a rank's thread to another core, and must leave it free to go wherever it was allowed.
#include "ring/base/home_core.h"

#include <doctest/doctest.h>

#include <initializer_list>
#include <thread>

namespace rondo::testing {
namespace {

cpu_set_t cores(std::initializer_list<int> list) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : list) CPU_SET(core, &set);
  return set;
}

cpu_set_t allowed_cores() {
  cpu_set_t set;
  REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
  return set;
}

}  // namespace

TEST_CASE("ranks of a host have cores of their own, of those that they may use") {
  // Proves: places are counted over the allowed cores only, and round where there are more ranks than cores.
  const cpu_set_t some = cores({2, 3, 7});
  CHECK(home_core(some, 0) == 2);
  CHECK(home_core(some, 1) == 3);
  CHECK(home_core(some, 2) == 7);
  CHECK(home_core(some, 3) == 2);
}

TEST_CASE("without a choice there is no home core") {
  // Proves: a thread pinned to one core, or a rank without a place, is left alone.
  CHECK(home_core(cores({5}), 0) == -1);
  CHECK(home_core(cores({5}), 1) == -1);
  CHECK(home_core(cores({}), 0) == -1);
  CHECK(home_core(cores({0, 1}), -1) == -1);
}

TEST_CASE("going home moves the thread, and restores what it may use") {
  // Proves: the thread runs on its home core afterwards and may still use all that it could; a pinned one stays.
  std::thread([] {
    const cpu_set_t before = allowed_cores();
    for (const int place : {0, 1, 0}) {
      const int home = home_core(before, place);
      bool arrived = home < 0;
      // The scheduler may move the thread on at once, though it has no reason to.
      for (int attempt = 0; attempt < 50 && !arrived; ++attempt) {
        go_home(place);
        arrived = sched_getcpu() == home;
      }
      CHECK(arrived);
      const cpu_set_t after = allowed_cores();
      CHECK(CPU_EQUAL(&before, &after));
    }
  }).join();
}

}  // namespace rondo::testing
