// Programs for streams are made once and kept; of a plan that no stream can run nothing is kept.
#include "ring/engine/device/stream_plans.h"

#include <doctest/doctest.h>

#include "rondo/error.h"

namespace rondo::testing {

TEST_CASE("a program is made once") {
  Topology topology;
  topology.host = {0, 0, 0};
  StreamPlans plans(1, topology, {0, 2, 1});
  const StreamPlans::Entry& entry = plans.get(Collective::kAllReduce, Algorithm::kRing, -1);
  CHECK(&entry == &plans.get(Collective::kAllReduce, Algorithm::kRing, -1));
  CHECK(entry.plan.rank == 1);
  CHECK(entry.program == lower(entry.plan));
  CHECK(entry.most_messages >= entry.program.messages);
}

TEST_CASE("a plan with scratch memory is refused each time") {
  Topology topology;
  topology.host = {0, 0, 0};
  StreamPlans plans(0, topology, {});
  for (int time = 0; time < 2; ++time) {
    CHECK_THROWS_AS(plans.get(Collective::kAllReduce, Algorithm::kStaged, -1), Exception);
  }
}

}  // namespace rondo::testing
