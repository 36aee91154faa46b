#include "ring/plan/cost_model.h"

#include <doctest/doctest.h>

#include "tests/plan/plans.h"

namespace rondo {

TEST_CASE("pairs: shared memory inside an island, loopback inside a host, the network between hosts") {
  Topology topology = hosts_of({4, 2});
  topology.island = {0, 0, -1, -1, 1, 1};
  CHECK_EQ(pair_kind(topology, 0, 1), PairKind::kMemory);
  CHECK_EQ(pair_kind(topology, 1, 2), PairKind::kLoopback);
  CHECK_EQ(pair_kind(topology, 2, 3), PairKind::kLoopback);
  CHECK_EQ(pair_kind(topology, 3, 4), PairKind::kNetwork);
  CHECK_EQ(pair_kind(topology, 5, 4), PairKind::kMemory);
}

}  // namespace rondo
