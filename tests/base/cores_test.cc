// Who shares cores with whom; and that waiting may move a thread, but must leave it free to go wherever it was allowed.
#include "ring/base/cores.h"

#include <doctest/doctest.h>

#include <initializer_list>
#include <string>
#include <thread>

#include "ring/base/types.h"

namespace rondo::testing {
namespace {

cpu_set_t cores(std::initializer_list<int> list) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : list) CPU_SET(core, &set);
  return set;
}

}  // namespace

TEST_CASE("sets of cores travel as bytes") {
  CHECK(pack_cores(cores({})).empty());
  CHECK(pack_cores(cores({0, 9})) == std::string("\x01\x02"));
  CHECK(pack_cores(cores({1023})).size() == kCoreSetBytes);
  for (const auto& set : {cores({}), cores({0}), cores({7, 8}), cores({3, 64, 1023})}) {
    const cpu_set_t back = unpack_cores(pack_cores(set));
    CHECK(CPU_EQUAL(&back, &set));
  }
  const cpu_set_t none = unpack_cores(std::string(kCoreSetBytes, '\0') + "\xff");  // beyond
  CHECK(CPU_COUNT(&none) == 0);
}

TEST_CASE("cores between the ranks of a host") {
  const cpu_set_t two = cores({0, 1}), four = cores({0, 1, 2, 3});
  CHECK(cores_between({}) == 0);
  CHECK(cores_between({two}) == 2);
  CHECK(cores_between({two, two, two, two}) == 2);
  CHECK(cores_between({four, four}) == 4);
  // Bound to a core each, as mpirun does: as many as ranks, though each may use one only.
  CHECK(cores_between({cores({0}), cores({1}), cores({2})}) == 3);
  // Bound to the same: one, however many cores the host has.
  CHECK(cores_between({cores({5}), cores({5})}) == 1);
  // Pairs on halves of the host.
  CHECK(cores_between({cores({0, 1}), cores({0, 1}), cores({2, 3}), cores({2, 3})}) == 4);
  // Three on one core, and one that may go anywhere: the three wait for their core, and all for them.
  CHECK(cores_between({cores({0}), cores({0}), cores({0}), four}) == 1);
  // Nested sets: {0} and {0, 1} twice are three ranks on two cores.
  CHECK(cores_between({cores({0}), two, two}) == 2);
  CHECK(cores_between({two, cores({})}) == 0);
}

TEST_CASE("ranks of a host have cores of their own, of those that they may use") {
  // Proves: places are counted over the allowed cores only, and round where there are more ranks than cores.
  const cpu_set_t some = cores({2, 3, 7});
  CHECK(home_core(some, 0) == 2);
  CHECK(home_core(some, 1) == 3);
  CHECK(home_core(some, 2) == 7);
  CHECK(home_core(some, 3) == 2);
}

TEST_CASE("fewer cores than ranks") {
  Topology topology;
  topology.host = {0, 0, 1};
  CHECK(!crowded(topology, 0, 2));  // not known
  topology.cores = {4, 4, 16};
  CHECK(!crowded(topology, 0, 4));
  CHECK(crowded(topology, 0, 5));
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
        const bool away = go_home(place);
        arrived = sched_getcpu() == home;
        if (arrived && !away) CHECK(!go_home(place));  // it was there
      }
      CHECK(arrived);
      const cpu_set_t after = allowed_cores();
      CHECK(CPU_EQUAL(&before, &after));
    }
  }).join();
}

}  // namespace rondo::testing
