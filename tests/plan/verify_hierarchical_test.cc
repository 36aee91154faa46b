#include "tests/plan/prove.h"

namespace rondo {
namespace {

void prove_on(const Topology& topology) {
  prove(request_of(Collective::kAllReduce, Algorithm::kHierarchical, topology));
}

// Rank r on host r % hosts: as launchers deal ranks that place them round-robin.
Topology dealt_round(int world, int hosts) {
  Topology topology;
  for (int r = 0; r < world; ++r) topology.host.push_back(r % hosts);
  return topology;
}

}  // namespace

TEST_CASE("all_reduce by hierarchy: equal hosts, every shape up to world 64, are proven") {
  for (int hosts = 1; hosts <= kLargestWorld; ++hosts) {
    for (int size = 1; hosts * size <= kLargestWorld; ++size) {
      if (size == 1 && hosts > 8) continue;  // the ring
      if (!is_proven(hosts * size)) continue;
      prove_on(hosts_of(std::vector<int>(static_cast<size_t>(hosts), size)));
    }
  }
}

TEST_CASE("all_reduce by hierarchy: hosts of different sizes are proven") {
  for (int world = 2; world <= kLargestWorld; ++world) {
    if (!is_proven(world)) continue;
    prove_on(hosts_of({1, world - 1}));
    prove_on(hosts_of({world - 1, 1}));
    if (world > 6) prove_on(hosts_of({world / 3, 1, world / 3 + 1, world - 2 - 2 * (world / 3)}));
  }
  prove_on(hosts_of({1, 2, 3, 4, 5, 6, 7, 8}));
  prove_on(hosts_of({130, 1, 5}));
}

TEST_CASE("all_reduce by hierarchy: equal hosts of more ranks than a step has sources are proven") {
  // Proves: in place a partial fold leaves the contribution of the rank that folds alone.
  prove_on(hosts_of({65, 65}));
  prove_on(hosts_of({66, 66, 66}));
  prove_on(hosts_of({129, 129}));
}

TEST_CASE("all_reduce by hierarchy: ranks dealt round the hosts are proven") {
  for (int hosts = 2; hosts <= 7; ++hosts) {
    for (int world : {hosts, 2 * hosts, 3 * hosts + 1, 33}) prove_on(dealt_round(world, hosts));
  }
}

}  // namespace rondo
