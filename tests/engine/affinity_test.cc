// Waiting may move a rank's thread to another core, and must leave it free to go wherever it was allowed.
#include <doctest/doctest.h>
#include <sched.h>

#include <chrono>
#include <thread>
#include <vector>

#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

cpu_set_t allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  expect(sched_getaffinity(0, sizeof set, &set) == 0, "sched_getaffinity");
  return set;
}

}  // namespace

TEST_CASE("short sleeps leave the cores that a thread may use as they were") {
  // Proves: moving a thread home after short sleeps (driver.cc) restores its affinity, on every rank.
  RankGroup shape;
  shape.world = 2;
  const std::string why = run_processes(shape, [](Communicator& group) {
    const cpu_set_t before = allowed_cores();
    std::vector<float> data(4, 1);
    for (int round = 0; round < 100; ++round) {
      // Later than a rank polls: the other sleeps, for a moment.
      if (group.rank() == round % 2) std::this_thread::sleep_for(std::chrono::microseconds(400));
      group.all_reduce(data.data(), data.data(), data.size(), DType::kFloat32, Op::kMax);
    }
    const cpu_set_t after = allowed_cores();
    expect(CPU_EQUAL(&before, &after) != 0, "the thread may use other cores than before");
  });
  CHECK(why == "");
}

}  // namespace rondo::testing
