#include "ring/plan/choose.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>

#include "ring/plan/layout.h"
#include "ring/plan/simulate.h"
#include "tests/plan/plans.h"

namespace rondo {
namespace {

Topology islands_of(const std::vector<int>& sizes) {
  Topology topology = hosts_of(sizes);
  topology.island = topology.host;
  return topology;
}

// What the engine makes of a call (slicing.cc), with its default settings.
SimulationRequest as_engine_cuts(const std::vector<Plan>& plans, uint64_t bytes, const Topology& topology) {
  SimulationRequest request;
  request.bytes = bytes;
  request.slices_per_chunk = std::max(1u, 4 / plans[0].chunks_in_flight);
  const Passing passing = passing_of(plans[0].algorithm, plans[0].blocks);
  const uint64_t slices = wanted_slices(passing, topology.one_host(), request.slices_per_chunk);
  const uint64_t slice = bytes / plans[0].blocks / slices;
  request.slice_bytes = std::clamp<uint64_t>(slice, smallest_slice_bytes(passing, loopback(topology)), 256 * 1024);
  return request;
}

double simulated_us(Collective collective, Algorithm algorithm, uint64_t bytes, const Topology& topology,
                    const CostModel& model) {
  PlanRequest request = request_of(collective, algorithm, topology);
  request.chunks_in_flight = 4;
  const std::vector<Plan> plans = plans_of_all_ranks(request);
  SimulationRequest simulation = as_engine_cuts(plans, bytes, topology);
  simulation.cost = model;
  simulation.topology = topology;
  return simulate(plans, simulation).time_us;
}

// The simulator has no price for further messages.
CostModel without_messages() {
  CostModel model;
  model.memory.message_us = model.loopback.message_us = model.network.message_us = 0;
  return model;
}

// What choose() chooses among over links.
std::vector<Algorithm> candidates(const Chooser& chooser, Collective collective, uint64_t bytes) {
  std::vector<Algorithm> list;
  for (int i = 1; i < kAlgorithms; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    if (in_island(algorithm) || !chooser.within_limits(collective, algorithm, bytes)) continue;
    if (std::isfinite(chooser.estimated_us(collective, algorithm, bytes))) list.push_back(algorithm);
  }
  return list;
}

}  // namespace

TEST_CASE("choose: what it chooses has a plan, and is no star where every rank has a core") {
  for (int c = 0; c < kCollectives; ++c) {
    const Collective collective = static_cast<Collective>(c);
    for (int world : {1, 2, 3, 4, 5, 8, 33, 64, 65, 1000}) {
      for (const Topology& topology :
           {one_host(world), hosts_of({world, 1}), hosts_of({world, world}), islands_of({world, 3})}) {
        const Chooser chooser(topology);
        for (uint64_t bytes = 1; bytes <= uint64_t{1} << 40; bytes *= 4) {
          const Algorithm algorithm = chooser.choose(collective, bytes);
          REQUIRE(plan_available(collective, algorithm, topology));
          REQUIRE_NE(algorithm, Algorithm::kStar);
          REQUIRE_NE(algorithm, Algorithm::kAuto);
          REQUIRE_FALSE(std::isinf(chooser.estimated_us(collective, algorithm, bytes)));
        }
        CHECK(plan_available(collective, chooser.choose(collective, 0), topology));
      }
    }
  }
}

TEST_CASE("estimated_us: every algorithm that may be chosen has an estimate wherever it has a plan") {
  for (int i = 1; i < kAlgorithms; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    CAPTURE(algorithm_name(algorithm));
    const bool part_of_window = over_windows(algorithm) && algorithm != Algorithm::kWindow;
    CHECK_EQ(std::count(std::begin(kChosen), std::end(kChosen), algorithm), part_of_window ? 0 : 1);
    if (algorithm == Algorithm::kStar) continue;  // only where ranks share cores
    for (const Topology& topology : {one_host(2), one_host(7), hosts_of({4, 4}), islands_of({8}), islands_of({3, 2})}) {
      for (int c = 0; c < kCollectives; ++c) {
        const auto collective = static_cast<Collective>(c);
        CAPTURE(collective_name(collective));
        CHECK_EQ(std::isfinite(Chooser(topology).estimated_us(collective, algorithm, 4096)),
                 plan_available(collective, algorithm, topology));
      }
    }
  }
}

TEST_CASE("cheapest: the first of equals; the only usable one, though it has no estimate; none where none is usable") {
  const auto is = [](Algorithm wanted) { return [wanted](Algorithm algorithm) { return algorithm == wanted; }; };
  const auto never = [](Algorithm) { return std::numeric_limits<double>::infinity(); };
  CHECK(cheapest([](Algorithm) { return true; }, [](Algorithm) { return 1.0; }) == Algorithm::kRing);
  CHECK(cheapest(is(Algorithm::kTree), never) == Algorithm::kTree);
  CHECK_FALSE(cheapest(is(Algorithm::kAuto), never).has_value());
}

TEST_CASE("choose: by more ranks than cores that speak by sockets, an all_reduce is a star, halving or a ring") {
  const auto on_cores = [](int world, int cores) {
    Topology topology = one_host(world);
    topology.cores.assign(static_cast<size_t>(world), cores);
    return Chooser(topology);
  };
  for (int world : {3, 4, 8, 33, 64}) {
    CAPTURE(world);
    const Chooser crowded = on_cores(world, 2), enough = on_cores(world, world), unknown(one_host(world));
    for (uint64_t bytes = 8; bytes <= uint64_t{1} << 30; bytes *= 2) {
      CAPTURE(bytes);
      const Algorithm usual = unknown.choose(Collective::kAllReduce, bytes);
      CHECK(enough.choose(Collective::kAllReduce, bytes) == usual);
      const Algorithm chosen = crowded.choose(Collective::kAllReduce, bytes);
      if (bytes <= 64 * 1024) {
        CHECK(chosen == Algorithm::kStar);
      } else if (bytes <= 1024 * 1024 || world <= 4) {
        const bool doubling = chosen == Algorithm::kRecursiveDoubling && world <= 4 && bytes <= 1024 * 1024;
        CHECK((doubling || chosen == Algorithm::kHalvingDoubling));
      } else if (bytes >= 256u << 20) {
        CHECK(chosen == Algorithm::kRing);
      }
      for (Collective other : {Collective::kBroadcast, Collective::kReduce, Collective::kAllGather}) {
        CHECK(crowded.choose(other, bytes) == unknown.choose(other, bytes));
      }
    }
  }
  // Through shared memory nobody sends messages.
  Topology island = islands_of({4});
  island.cores.assign(4, 2);
  CHECK(Chooser(island).choose(Collective::kAllReduce, 8) == Algorithm::kOneShot);
}

TEST_CASE("choose: large buffers of several hosts take what sends little between these") {
  for (int world : {3, 4, 7, 8, 16, 64}) {
    // Halving crosses between hosts last, with 1/world of the data, if hosts hold a power of two of ranks.
    const bool halves = std::has_single_bit(static_cast<unsigned>(world));
    CHECK_EQ(Chooser(hosts_of({world, world})).choose(Collective::kAllReduce, 64 << 20),
             halves ? Algorithm::kHalvingDoubling : Algorithm::kHierarchical);
  }
}

// Choices by size in worlds of up to 128: tests/tools/choices.txt.
TEST_CASE("choose: small buffers of many ranks take logarithmically many messages") {
  const Chooser many(one_host(1000));
  CHECK_EQ(many.choose(Collective::kAllReduce, 8), Algorithm::kRecursiveDoubling);
  CHECK_EQ(many.choose(Collective::kBroadcast, 8), Algorithm::kTree);
  CHECK_EQ(Chooser(one_host(33)).choose(Collective::kAllReduce, 256 * 1024), Algorithm::kDoubleTree);
  CHECK_EQ(Chooser(one_host(3)).choose(Collective::kBarrier, 0), Algorithm::kDirect);
  CHECK_EQ(Chooser(one_host(64)).choose(Collective::kBarrier, 0), Algorithm::kRing);
  for (int world : {2, 4, 64})
    CHECK_EQ(Chooser(islands_of({world})).choose(Collective::kBarrier, 0), Algorithm::kOneShot);
}

TEST_CASE("choose: islands of 2 and 3 ranks between which the network is slow take the hierarchy") {
  const Topology mixed = islands_of({2, 3});
  CostModel model;
  model.network = {50, 1.0 / 500, 2};
  const Chooser chooser(mixed, model);
  for (uint64_t bytes : {256 * 1024, 1 << 20, 16 << 20, 64 << 20}) {
    CAPTURE(bytes);
    CHECK_EQ(chooser.choose(Collective::kAllReduce, bytes), Algorithm::kHierarchical);
    // The simulator, which knows nothing of the closed forms, agrees that it beats the ring.
    CHECK_LT(simulated_us(Collective::kAllReduce, Algorithm::kHierarchical, bytes, mixed, model),
             simulated_us(Collective::kAllReduce, Algorithm::kRing, bytes, mixed, model));
  }
}

TEST_CASE("estimated_us: equal to the simulator where the closed form is exact") {
  for (int world : {2, 4, 8, 16, 64}) {
    for (Algorithm algorithm : {Algorithm::kRing, Algorithm::kRecursiveDoubling}) {
      // The simulator knows nothing of processors that carry the bytes themselves.
      if (world == 2 && algorithm == Algorithm::kRing) continue;
      const SimulationRequest request = one_slice(16 * 1024);
      const auto plans = plans_of_all_ranks(request_of(Collective::kAllReduce, algorithm, one_host(world)));
      CHECK_EQ(Chooser(one_host(world)).estimated_us(Collective::kAllReduce, algorithm, request.bytes),
               doctest::Approx(simulate(plans, request).time_us));
    }
  }
  // Two ranks on two hosts: the ring's closed form again.
  SimulationRequest request = one_slice(16 * 1024);
  request.topology = hosts_of({1, 1});
  const auto plans = plans_of_all_ranks(request_of(Collective::kAllReduce, Algorithm::kRing, request.topology));
  CHECK_EQ(Chooser(request.topology).estimated_us(Collective::kAllReduce, Algorithm::kRing, request.bytes),
           doctest::Approx(simulate(plans, request).time_us));
  CHECK(std::isinf(Chooser(one_host(4)).estimated_us(Collective::kAllToAll, Algorithm::kTree, 1)));
}

// Where nothing but bytes costs, the closed form of windows is exact.
TEST_CASE("estimated_us: what staged copies and folds is what the simulator counts, for every collective") {
  CostModel bytes_alone;
  bytes_alone.memory.alpha_us = bytes_alone.memory.message_us = 0;
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather, Collective::kBroadcast,
        Collective::kReduce, Collective::kGather, Collective::kScatter, Collective::kAllToAll}) {
    for (const int world : {2, 3, 8}) {
      SimulationRequest request = one_slice(static_cast<uint64_t>(world) * 1024 * 1024);
      request.cost = bytes_alone;
      request.topology = one_island_of(world);
      const auto plans = plans_of_all_ranks(request_of(collective, Algorithm::kStaged, request.topology));
      CAPTURE(collective_name(collective));
      CAPTURE(world);
      CHECK_EQ(Chooser(request.topology, bytes_alone).estimated_us(collective, Algorithm::kWindow, request.bytes),
               doctest::Approx(simulate(plans, request).time_us));
    }
  }
}

// The band is what choosing needs, not how close they are: algorithms that the model takes for the other's equal.
TEST_CASE("estimated_us: within -30 % and +35 % of the simulator for what choose() picks, cut as the engine does") {
  const CostModel model = without_messages();
  for (Collective collective : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                                Collective::kBroadcast, Collective::kReduce}) {
    for (int world : {2, 4, 5, 8, 13, 16, 24, 32}) {
      const Topology topology = one_host(world);
      const Chooser chooser(topology, model);
      for (uint64_t bytes = 256; bytes <= 8u << 20; bytes *= 4) {
        const Algorithm algorithm = chooser.choose(collective, bytes);
        const double ratio = chooser.estimated_us(collective, algorithm, bytes) /
                             simulated_us(collective, algorithm, bytes, topology, model);
        INFO(std::string(collective_name(collective))
             << " of " << bytes << " among " << world << " by " << std::string(algorithm_name(algorithm)));
        CHECK_GT(ratio, 0.7);
        CHECK_LT(ratio, 1.35);
      }
    }
  }
}

// Sizes between these reach 33 % (where scans of many slices meet at one receiver). Over windows the closed form
// charges the moves in which a rank stages its own block alone (all_gather, gather, scatter) for twice what they copy.
TEST_CASE("choose: over TCP, what it chooses takes at most 35 % longer by simulation than the best of its candidates") {
  const CostModel model = without_messages();
  for (int c = 0; c < kCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    for (int world : {2, 3, 4, 5, 8, 16, 24, 64}) {
      const Topology topology = one_host(world);
      const Chooser chooser(topology, model);
      for (uint64_t bytes = 8; bytes <= uint64_t{256} << 20; bytes *= 32) {
        const Algorithm chosen = chooser.choose(collective, bytes);
        const double chosen_us = simulated_us(collective, chosen, bytes, topology, model);
        for (Algorithm other : candidates(chooser, collective, bytes)) {
          INFO(std::string(collective_name(collective))
               << " of " << bytes << " among " << world << " by " << std::string(algorithm_name(chosen)) << ", not "
               << std::string(algorithm_name(other)));
          CHECK_LE(chosen_us, 1.35 * simulated_us(collective, other, bytes, topology, model));
        }
        if (collective == Collective::kBarrier) break;
      }
    }
  }
}

}  // namespace rondo
