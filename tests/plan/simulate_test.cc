#include "ring/plan/simulate.h"

#include <doctest/doctest.h>

#include "tests/plan/plans.h"

namespace rondo {
namespace {

SimulationRequest one_slice(uint64_t bytes) {
  SimulationRequest request;
  request.bytes = bytes;
  request.slice_bytes = bytes;
  request.slices_per_chunk = 1;
  return request;
}

std::vector<Plan> all_reduce(Algorithm algorithm, int world, int lanes = 1) {
  return plans_of_all_ranks(request_of(Collective::kAllReduce, algorithm, one_host(world), 0, lanes));
}

double ring_closed_form(const CostModel& m, double n, double bytes) {
  return 2 * (n - 1) * (m.alpha_us + m.beta_us_per_byte * bytes / n) + (n - 1) * m.gamma_us_per_byte * bytes / n;
}

}  // namespace

TEST_CASE("the ring takes 2(N-1)(a + b m/N) + (N-1) g m/N with one slice a chunk, one lane, one round") {
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
      CHECK_GE(result.time_us, 2 * (n - 1) / n * bytes * request.cost.beta_us_per_byte);
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
    const CostModel& c = request.cost;
    int levels = 0;
    while ((1 << levels) < world) ++levels;
    CHECK_EQ(simulate(all_reduce(Algorithm::kRecursiveDoubling, world), request).time_us,
             doctest::Approx(levels * (c.alpha_us + (c.beta_us_per_byte + c.gamma_us_per_byte) * m)));
    CHECK_EQ(simulate(all_reduce(Algorithm::kDirect, world), request).time_us,
             doctest::Approx(c.alpha_us + (world - 1) * (c.beta_us_per_byte + c.gamma_us_per_byte) * m));
  }
}

TEST_CASE("a star's hub moves N-1 times the data; the ring's ranks less than twice") {
  SimulationRequest request;
  request.bytes = 16 << 20;
  request.cost.alpha_us = 0;
  request.cost.gamma_us_per_byte = 0;
  const double once = static_cast<double>(request.bytes) * request.cost.beta_us_per_byte;
  CHECK_GE(simulate(all_reduce(Algorithm::kStar, 8), request).time_us, 7 * once);
  CHECK_LE(simulate(all_reduce(Algorithm::kRing, 8), request).time_us, 2 * once);
}

TEST_CASE("lanes share the ports: four are as fast as one where bytes are all that costs") {
  SimulationRequest request;
  request.bytes = 4 << 20;
  request.slice_bytes = 1 << 20;
  request.slices_per_chunk = 1;
  request.cost.alpha_us = 0;
  request.cost.gamma_us_per_byte = 0;
  const double one = simulate(all_reduce(Algorithm::kRing, 4, 1), request).time_us;
  CHECK_EQ(simulate(all_reduce(Algorithm::kRing, 4, 4), request).time_us, doctest::Approx(one).epsilon(0.01));
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
