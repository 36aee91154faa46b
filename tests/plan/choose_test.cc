#include "ring/plan/choose.h"

#include <doctest/doctest.h>

#include <cmath>

#include "ring/plan/simulate.h"
#include "tests/plan/plans.h"

namespace rondo {

TEST_CASE("choose: what it chooses has a plan, and is neither star nor auto") {
  for (int c = 0; c < kCollectives; ++c) {
    const Collective collective = static_cast<Collective>(c);
    for (int world : {1, 2, 3, 4, 5, 8, 33, 64, 65, 1000}) {
      for (const Topology& topology : {one_host(world), hosts_of({world, 1}), hosts_of({world, world})}) {
        for (uint64_t bytes = 1; bytes <= uint64_t{1} << 40; bytes *= 4) {
          const Algorithm algorithm = choose(collective, bytes, topology);
          REQUIRE(plan_available(collective, algorithm, topology));
          REQUIRE_NE(algorithm, Algorithm::kStar);
          REQUIRE_NE(algorithm, Algorithm::kAuto);
        }
        CHECK(plan_available(collective, choose(collective, 0, topology), topology));
      }
    }
  }
}

TEST_CASE("choose: two ranks exchange small buffers directly, and use the ring for large ones") {
  const Topology two = one_host(2);
  for (uint64_t bytes : {0, 8, 1024, 32 * 1024, 64 * 1024}) {
    CHECK_EQ(choose(Collective::kAllReduce, bytes, two), Algorithm::kDirect);
  }
  for (uint64_t bytes : {128 * 1024, 1 << 20, 64 << 20}) {
    CHECK_EQ(choose(Collective::kAllReduce, bytes, two), Algorithm::kRing);
  }
}

TEST_CASE("choose: large buffers take the ring on one host, and the hierarchy over several of equal size") {
  for (int world : {3, 4, 7, 8, 16, 64}) {
    CHECK_EQ(choose(Collective::kAllReduce, 64 << 20, one_host(world)), Algorithm::kRing);
    CHECK_EQ(choose(Collective::kAllReduce, 64 << 20, hosts_of({world, world})), Algorithm::kHierarchical);
    CHECK_EQ(choose(Collective::kAllGather, 64 << 20, one_host(world)), Algorithm::kRing);
    CHECK_EQ(choose(Collective::kReduceScatter, 64 << 20, one_host(world)), Algorithm::kRing);
    CHECK_EQ(choose(Collective::kBroadcast, 64 << 20, one_host(world)), Algorithm::kRing);
  }
  // One rank a host: nothing to fold inside.
  CHECK_EQ(choose(Collective::kAllReduce, 64 << 20, hosts_of({1, 1, 1, 1})), Algorithm::kRing);
}

TEST_CASE("choose: small buffers of many ranks take logarithmically many messages") {
  CHECK_EQ(choose(Collective::kAllReduce, 8, one_host(64)), Algorithm::kRecursiveDoubling);
  CHECK_EQ(choose(Collective::kAllReduce, 8, one_host(1000)), Algorithm::kRecursiveDoubling);
  CHECK_EQ(choose(Collective::kBroadcast, 8, one_host(1000)), Algorithm::kTree);
  CHECK_EQ(choose(Collective::kBarrier, 0, one_host(3)), Algorithm::kDirect);
  CHECK_EQ(choose(Collective::kBarrier, 0, one_host(64)), Algorithm::kRing);
}

TEST_CASE("choose: a slower wire moves the threshold, a model of the caller's is used") {
  CostModel slow;
  slow.alpha_us = 50;
  const Topology four = one_host(4);
  CHECK_EQ(choose(Collective::kAllReduce, 512 * 1024, four), Algorithm::kRing);
  CHECK_NE(choose(Collective::kAllReduce, 512 * 1024, four, false, slow), Algorithm::kRing);
}

TEST_CASE("estimated_us: equal to the simulator where the closed form is exact") {
  for (int world : {2, 4, 8, 16, 64}) {
    for (Algorithm algorithm : {Algorithm::kRing, Algorithm::kRecursiveDoubling}) {
      SimulationRequest request;
      request.bytes = 64 * 1024;
      request.slice_bytes = request.bytes;
      request.slices_per_chunk = 1;
      const auto plans = plans_of_all_ranks(request_of(Collective::kAllReduce, algorithm, one_host(world)));
      CHECK_EQ(estimated_us(Collective::kAllReduce, algorithm, request.bytes, one_host(world)),
               doctest::Approx(simulate(plans, request).time_us));
    }
  }
  CHECK(std::isinf(estimated_us(Collective::kAllToAll, Algorithm::kTree, 1, one_host(4))));
}

}  // namespace rondo
