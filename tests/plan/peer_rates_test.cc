// Which ring, and which plan, devices take that reach each other at different rates, or do not: a pure function of the
// rates of all pairs.
#include "ring/plan/peer_rates.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace rondo {
namespace {

PeerRates rates_of(int world, const std::function<uint64_t(int from, int to)>& rate) {
  PeerRates rates;
  rates.world = world;
  for (int from = 0; from < world; ++from) {
    for (int to = 0; to < world; ++to) rates.mib_per_s.push_back(from == to ? 0 : rate(from, to));
  }
  return rates;
}

uint64_t slowest_of(const PeerRates& rates, const std::vector<int>& order) {
  uint64_t slowest = UINT64_MAX;
  for (size_t i = 0; i < order.size(); ++i) {
    slowest = std::min(slowest, rates.of(order[i], order[(i + 1) % order.size()]));
  }
  return slowest;
}

// By trying all orders.
uint64_t best_slowest(const PeerRates& rates) {
  std::vector<int> order;
  for (int rank = 0; rank < rates.world; ++rank) order.push_back(rank);
  uint64_t best = 0;
  do {
    best = std::max(best, slowest_of(rates, order));
  } while (std::next_permutation(order.begin() + 1, order.end()));
  return best;
}

// Two sockets: pairs of a socket are fast, between sockets there is one slower path.
uint64_t two_sockets(int from, int to) { return from % 2 == to % 2 ? 20'000 : 5'000; }

}  // namespace

TEST_CASE("equal rates, also as they are measured: ranks in their order") {
  std::mt19937 random(7);
  for (const int world : {1, 2, 3, 8, 64}) {
    const PeerRates rates = rates_of(world, [&](int, int) { return 400'000 + random() % 8'000; });
    std::vector<int> expected;
    for (int rank = 0; rank < world; ++rank) expected.push_back(rank);
    CHECK(ring_order(rates) == expected);
    CHECK(rates.complete());
  }
}

TEST_CASE("the slowest pair of the ring is within a class of the best that any order has") {
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    const int world = 2 + static_cast<int>(random() % 6);
    const PeerRates rates = rates_of(world, [&](int, int) { return random() % 4 == 0 ? 0 : 1'000 << random() % 6; });
    const std::vector<int> order = ring_order(rates);
    const uint64_t best = best_slowest(rates);
    CAPTURE(world);
    CHECK(order.empty() == (best == 0));
    if (best == 0) continue;
    std::vector<int> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    for (int rank = 0; rank < world; ++rank) CHECK(sorted[static_cast<size_t>(rank)] == rank);
    CHECK(static_cast<double>(slowest_of(rates, order)) * 1.2 >= static_cast<double>(best));
  }
}

TEST_CASE("8 devices in a row that reach their neighbors only have no ring; in a circle they have one") {
  const auto row = [](int from, int to) -> uint64_t { return std::abs(from - to) == 1 ? 1'000 : 0; };
  CHECK(ring_order(rates_of(8, row)).empty());
  const auto circle = [&](int from, int to) {
    return std::max(row(from, to), row(0, std::abs(from - to) == 7 ? 1 : 0));
  };
  const PeerRates rates = rates_of(8, circle);
  CHECK(ring_order(rates).size() == 8);
  CHECK_FALSE(rates.complete());
}

TEST_CASE("two sockets: the ring crosses between them twice") {
  const std::vector<int> order = ring_order(rates_of(8, two_sockets));
  int crossings = 0;
  for (size_t i = 0; i < order.size(); ++i) crossings += order[i] % 2 != order[(i + 1) % order.size()] % 2 ? 1 : 0;
  CHECK(crossings == 2);
}

TEST_CASE(
    "full meshes of equal rates take passes over all memory; pairs that are much slower than a ring take the ring") {
  const PeerRates mesh = rates_of(8, [](int, int) { return 400'000; });
  // Pairs of neighbors are fast, all others go through the host.
  const PeerRates circle = rates_of(8, [](int from, int to) {
    const int distance = std::min((from - to + 8) % 8, (to - from + 8) % 8);
    return distance == 1 ? 100'000 : 4'000;
  });
  for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                                      Collective::kBroadcast, Collective::kReduce}) {
    for (const uint64_t bytes : {uint64_t{8}, uint64_t{1} << 20, uint64_t{256} << 20}) {
      const DeviceCall call{collective,
                            collective == Collective::kBroadcast || collective == Collective::kReduce ? 3 : -1, bytes};
      CAPTURE(static_cast<int>(collective));
      CAPTURE(bytes);
      CHECK(registered_microseconds(mesh, call) <= ring_microseconds(mesh, ring_order(mesh), call));
    }
  }
  const DeviceCall large{Collective::kAllReduce, -1, uint64_t{256} << 20}, small{Collective::kAllReduce, -1, 4096};
  CHECK(ring_microseconds(circle, ring_order(circle), large) < registered_microseconds(circle, large));
  CHECK(registered_microseconds(circle, small) < ring_microseconds(circle, ring_order(circle), small));
  CHECK(choose_device_plan(circle, ring_order(circle), large, Algorithm::kAuto) == Algorithm::kRing);
  CHECK(choose_device_plan(circle, ring_order(circle), large, Algorithm::kRegistered) == Algorithm::kRegistered);
  CHECK(choose_device_plan(circle, ring_order(circle), small, Algorithm::kAuto) == Algorithm::kRegistered);
  CHECK(choose_device_plan(mesh, ring_order(mesh), large, Algorithm::kAuto) == Algorithm::kRegistered);
  CHECK(choose_device_plan(mesh, ring_order(mesh), large, Algorithm::kRing) == Algorithm::kRing);
  CHECK(choose_device_plan(mesh, ring_order(mesh), large, Algorithm::kTree) == Algorithm::kAuto);
}

TEST_CASE("devices that do not all reach each other: the ring, where the collective has one, else neither") {
  const PeerRates circle = rates_of(4, [](int from, int to) { return (to - from + 4) % 4 == 1 ? 1'000 : 0; });
  const std::vector<int> order = ring_order(circle);
  for (int collective = 0; collective < kCollectives; ++collective) {
    const DeviceCall call{Collective(collective), collective_has_root(Collective(collective)) ? 1 : -1, 1 << 20};
    const Algorithm expected = ring_of_neighbors(call.collective) ? Algorithm::kRing : Algorithm::kAuto;
    CAPTURE(collective);
    CHECK(choose_device_plan(circle, order, call, Algorithm::kAuto) == expected);
    CHECK(choose_device_plan(circle, order, call, Algorithm::kRegistered) == Algorithm::kAuto);
    CHECK(choose_device_plan(circle, {}, call, Algorithm::kAuto) == Algorithm::kAuto);
  }
}

TEST_CASE("a rank by itself needs no ring") {
  const PeerRates alone = rates_of(1, [](int, int) { return 0; });
  for (const Algorithm asked : {Algorithm::kAuto, Algorithm::kRegistered, Algorithm::kRing}) {
    CHECK(choose_device_plan(alone, ring_order(alone), {}, asked) == Algorithm::kRegistered);
  }
}

TEST_CASE("the model's figures for an all_reduce of 4 equal ranks") {
  const PeerRates rates = rates_of(4, [](int, int) { return 1'000; });  // 1,048.576 bytes a microsecond
  const DeviceCall call{Collective::kAllReduce, -1, 4 << 20};
  CHECK(registered_microseconds(rates, call) == doctest::Approx(6'000 + kPassMicroseconds));
  CHECK(ring_microseconds(rates, ring_order(rates), call) == doctest::Approx(6'000 + 6 * kPassMicroseconds));
}

}  // namespace rondo
