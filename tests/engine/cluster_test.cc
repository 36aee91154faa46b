// Real executors on real stream links over a simulated network, in one thread: every delay, partial transfer and order
// of ranks comes from a seed. `cluster_test --seeds=10000 --first-seed=1` is the long run.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

#include "ring/plan/build.h"
#include "tests/engine/arguments.h"
#include "tests/engine/cluster.h"
#include "tests/support/random.h"

namespace rondo::testing {
namespace {

ClusterShape random_shape(Random& random) {
  ClusterShape shape;
  shape.world = static_cast<int>(1 + random.below(7));
  shape.connections = random.below(2) == 0 ? 1 : 3;
  shape.config.slice_bytes = 4096;
  shape.config.slices_per_chunk = static_cast<uint32_t>(1 + random.below(4));
  return shape;
}

Algorithm random_algorithm(Random& random, const CollectiveCase& what) {
  const Topology topology = two_hosts(what.world);
  while (true) {
    const auto algorithm = static_cast<Algorithm>(1 + random.below(kAlgorithms - 1));
    if (plan_available(what.collective, algorithm, topology)) return algorithm;
  }
}

}  // namespace

TEST_CASE("every collective ends with the reference result under random delays, crumbs and orders") {
  // Proves: executor, links and plans together neither hang, nor mix slices up, nor write beside the output.
  const auto [first, seeds] = seed_range(300);
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    Random random(seed);
    const ClusterShape shape = random_shape(random);
    Cluster cluster(shape, seed);
    for (uint64_t sequence = 1; sequence <= 4; ++sequence) {
      const CollectiveCase what = random_case(random, shape.world);
      const Algorithm algorithm = random_algorithm(random, what);
      const std::string trouble = cluster.run(what, cluster.plans_of(what, algorithm), sequence);
      REQUIRE_MESSAGE(trouble.empty(),
                      fmt::format("seed {} operation {}: {} by {} (connections {}): {}", seed, sequence,
                                  what.describe(), algorithm_name(algorithm), shape.connections, trouble));
    }
  }
}

TEST_CASE("a cut connection ends in an error of its link, never in a wrong result") {
  // Proves: after a cut at any byte, an operation either completes with the right result or a link says why it cannot.
  const auto [first, seeds] = seed_range(300);
  int failed = 0;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    Random random(seed + 1'000'000);
    ClusterShape shape = random_shape(random);
    if (shape.world == 1) continue;
    Cluster cluster(shape, seed);
    CollectiveCase what = random_case(random, shape.world);
    what.collective = Collective::kAllReduce;
    what.counts.clear();
    what.count = 100 + random.below(2000);
    const int victim = static_cast<int>(random.below(static_cast<uint64_t>(cluster.connections())));
    cluster.network().cut_after(victim, random.below(3000), random.below(2) == 0 ? SimCut::kClose : SimCut::kReset);
    const std::string trouble = cluster.run(what, cluster.plans_of(what, random_algorithm(random, what)), 1);
    if (trouble.empty()) continue;
    REQUIRE_MESSAGE(trouble == "hung", fmt::format("seed {}: {}", seed, trouble));
    REQUIRE_MESSAGE(cluster.any_link_failed(), fmt::format("seed {}: hung without an error", seed));
    ++failed;
  }
  CHECK(failed > 0);
}

}  // namespace rondo::testing
