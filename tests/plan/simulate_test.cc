#include "ring/plan/simulate.h"

#include <doctest/doctest.h>

#include <cmath>

#include "ring/plan/cost_model.h"
#include "tests/plan/plans.h"

namespace rondo {
namespace {

std::vector<Plan> all_reduce(Algorithm algorithm, int world) {
  return plans_of_all_ranks(request_of(Collective::kAllReduce, algorithm, one_host(world)));
}

double ring_closed_form(const CostModel& m, double n, double bytes) {
  return 2 * (n - 1) * (m.loopback.alpha_us + m.loopback.beta_us_per_byte * bytes / n) +
         (n - 1) * m.gamma_us_per_byte * bytes / n;
}

}  // namespace

TEST_CASE("the ring takes 2(N-1)(a + b m/N) + (N-1) g m/N with one slice a chunk, one round") {
  for (int world = 2; world <= 64; ++world) {
    for (uint64_t blocks : {1u, 1000u, 250000u}) {
      const uint64_t bytes = blocks * static_cast<uint64_t>(world);
      const SimulationRequest request = one_slice(bytes);
      const Simulation result = simulate(all_reduce(Algorithm::kRing, world), request);
      REQUIRE(result.finished);
      CHECK_EQ(result.time_us,
               doctest::Approx(ring_closed_form(request.cost, world, static_cast<double>(bytes))).epsilon(1e-9));
    }
  }
}

TEST_CASE("the ring with several slices a chunk and rounds lies between the bandwidth bound and the closed form") {
  for (int world : {2, 3, 4, 8, 16}) {
    for (uint32_t slices : {2u, 4u, 8u}) {
      SimulationRequest request;
      request.bytes = uint64_t{1} << 22;
      request.slices_per_chunk = slices;
      request.slice_bytes = request.bytes / static_cast<uint64_t>(world) / slices + 1;
      const double n = world, bytes = static_cast<double>(request.bytes);
      const Simulation result = simulate(all_reduce(Algorithm::kRing, world), request);
      REQUIRE(result.finished);
      CHECK_GE(result.time_us, 2 * (n - 1) / n * bytes * request.cost.loopback.beta_us_per_byte);
      CHECK_LE(result.time_us, ring_closed_form(request.cost, n, bytes) * (1 + 1e-9));
      if (world > 2) CHECK_LT(result.time_us, ring_closed_form(request.cost, n, bytes) * 0.97);  // it pipelines
    }
  }
}

TEST_CASE("direct takes a + (N-1)(b + g) m, doubling log2(N)(a + (b + g) m)") {
  const uint64_t bytes = 8192;
  const double m = static_cast<double>(bytes);
  for (int world : {2, 4, 8, 16, 32}) {
    const SimulationRequest request = one_slice(bytes);
    const PairCost& c = request.cost.loopback;
    const double gamma = request.cost.gamma_us_per_byte;
    int levels = 0;
    while ((1 << levels) < world) ++levels;
    CHECK_EQ(simulate(all_reduce(Algorithm::kRecursiveDoubling, world), request).time_us,
             doctest::Approx(levels * (c.alpha_us + (c.beta_us_per_byte + gamma) * m)));
    CHECK_EQ(simulate(all_reduce(Algorithm::kDirect, world), request).time_us,
             doctest::Approx(c.alpha_us + (world - 1) * (c.beta_us_per_byte + gamma) * m));
  }
}

TEST_CASE("halving and doubling takes 2 log2(N) a + 2(N-1)/N b m and a fold an exchange, with all blocks in flight") {
  for (int world : {2, 4, 8, 16, 32, 64}) {
    PlanRequest plan = request_of(Collective::kAllReduce, Algorithm::kHalvingDoubling, one_host(world));
    plan.chunks_in_flight = 32;
    const uint64_t block = 4096, bytes = block * static_cast<uint64_t>(world);
    SimulationRequest request = one_slice(bytes);
    const PairCost& c = request.cost.loopback;
    const double b = static_cast<double>(block), levels = std::log2(world);
    CHECK_EQ(simulate(plans_of_all_ranks(plan), request).time_us,
             doctest::Approx(levels * (2 * c.alpha_us + request.cost.gamma_us_per_byte * b) +
                             2 * (world - 1) * c.beta_us_per_byte * b));
  }
}

TEST_CASE("PAT takes log2(N) messages in a row with all blocks in flight, and the bytes of the ring") {
  for (int world : {2, 4, 8, 16, 32, 64}) {
    PlanRequest plan = request_of(Collective::kAllGather, Algorithm::kPat, one_host(world));
    plan.chunks_in_flight = 32;
    const uint64_t block = 4096, bytes = block * static_cast<uint64_t>(world);
    const SimulationRequest request = one_slice(bytes);
    const PairCost& c = request.cost.loopback;
    CHECK_EQ(
        simulate(plans_of_all_ranks(plan), request).time_us,
        doctest::Approx(std::log2(world) * c.alpha_us + (world - 1) * c.beta_us_per_byte * static_cast<double>(block)));
  }
}

TEST_CASE("double trees take (2 log2(N) + 6) messages in a row, down alone log2(N) + 5, where bytes cost nothing") {
  for (int world : {8, 16, 32, 64}) {
    SimulationRequest request = one_slice(4096);
    request.cost.loopback = {1, 0, 0};
    request.cost.gamma_us_per_byte = 0;
    for (Collective collective : {Collective::kAllReduce, Collective::kBroadcast, Collective::kReduce}) {
      PlanRequest plan = request_of(collective, Algorithm::kDoubleTree, one_host(world));
      plan.chunks_in_flight = 2;
      const double levels = std::log2(world);
      CAPTURE(world);
      CHECK_EQ(simulate(plans_of_all_ranks(plan), request).time_us,
               doctest::Approx(collective == Collective::kAllReduce ? 2 * levels + 6 : levels + 5));
    }
  }
}

TEST_CASE("pairs cost what their kind does: an island's ring is faster, and one pair between hosts holds up all") {
  SimulationRequest request = one_slice(8 * 1024);
  request.topology = one_host(8);
  const std::vector<Plan> plans = all_reduce(Algorithm::kRing, 8);
  const double loopback = simulate(plans, request).time_us;
  request.topology.island.assign(8, 0);
  const double memory = simulate(plans, request).time_us;
  request.topology = hosts_of({7, 1});
  const double network = simulate(plans, request).time_us;
  const double block = 1024, folds = 7 * request.cost.gamma_us_per_byte * block;
  const auto flat = [&](const PairCost& c) { return 14 * (c.alpha_us + c.beta_us_per_byte * block) + folds; };
  CHECK_EQ(loopback, doctest::Approx(flat(request.cost.loopback)));
  CHECK_EQ(memory, doctest::Approx(flat(request.cost.memory)));
  CHECK_GT(network, loopback);
  CHECK_LE(network, flat(request.cost.network));
}

TEST_CASE("pairs: shared memory inside an island, loopback inside a host, the network between hosts") {
  Topology topology = hosts_of({4, 2});
  topology.island = {0, 0, -1, -1, 1, 1};
  CHECK_EQ(pair_kind(topology, 0, 1), PairKind::kMemory);
  CHECK_EQ(pair_kind(topology, 1, 2), PairKind::kLoopback);
  CHECK_EQ(pair_kind(topology, 2, 3), PairKind::kLoopback);
  CHECK_EQ(pair_kind(topology, 3, 4), PairKind::kNetwork);
  CHECK_EQ(pair_kind(topology, 5, 4), PairKind::kMemory);
}

TEST_CASE("staged takes two barriers, two copies and a fold; one shot a message and what is posted and taken") {
  for (int world : {2, 3, 8}) {
    const uint64_t block = 1024, bytes = block * static_cast<uint64_t>(world);
    SimulationRequest request = one_slice(bytes);
    request.topology = one_island_of(world);
    const auto us = [&](Algorithm algorithm) {
      return simulate(plans_of_all_ranks(request_of(Collective::kAllReduce, algorithm, request.topology)), request)
          .time_us;
    };
    const CostModel& model = request.cost;
    const double m = static_cast<double>(bytes), others = (world - 1) * static_cast<double>(block);
    CHECK_EQ(us(Algorithm::kStaged), doctest::Approx(2 * model.memory.alpha_us + 2 * model.copy_us_per_byte * others +
                                                     model.gamma_us_per_byte * others));
    CHECK_EQ(us(Algorithm::kOneShot), doctest::Approx(model.memory.alpha_us + model.post_us_per_byte * world * m));
  }
}

TEST_CASE("a star's hub moves N-1 times the data; the ring's ranks less than twice") {
  SimulationRequest request;
  request.bytes = 16 << 20;
  request.cost.loopback.alpha_us = 0;
  request.cost.gamma_us_per_byte = 0;
  const double once = static_cast<double>(request.bytes) * request.cost.loopback.beta_us_per_byte;
  CHECK_GE(simulate(all_reduce(Algorithm::kStar, 8), request).time_us, 7 * once);
  CHECK_LE(simulate(all_reduce(Algorithm::kRing, 8), request).time_us, 2 * once);
}

TEST_CASE("a link that holds too little is reported as a deadlock, not as a time") {
  SimulationRequest request;
  request.bytes = 1 << 20;
  request.slice_bytes = 4096;
  request.slices_per_chunk = 4;
  request.depth = 2;  // less than a chunk: every rank sends its first chunk before it receives
  CHECK_FALSE(simulate(all_reduce(Algorithm::kRing, 4), request).finished);
}

TEST_CASE("the ring of a thousand ranks is simulated") {
  SimulationRequest request = one_slice(1000 * 4096);
  const Simulation result = simulate(all_reduce(Algorithm::kRing, 1000), request);
  CHECK(result.finished);
  CHECK_EQ(result.time_us, doctest::Approx(ring_closed_form(request.cost, 1000, 1000 * 4096.0)));
  CHECK_EQ(result.slices, 1000 * (2 * 1000 - 1));
}

}  // namespace rondo
