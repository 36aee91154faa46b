// Which ring, and which plan, devices take that reach each other, or do not: a pure function of all pairs.
#include "ring/plan/peer_reach.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace rondo {
namespace {

PeerReach reach_of(int world, const std::function<bool(int from, int to)>& reaches) {
  PeerReach reach;
  reach.world = world;
  for (int from = 0; from < world; ++from) {
    for (int to = 0; to < world; ++to) reach.reaches.push_back(from != to && reaches(from, to));
  }
  return reach;
}

bool is_ring(const PeerReach& reach, const std::vector<int>& order) {
  for (size_t i = 0; i < order.size(); ++i) {
    if (!reach.of(order[i], order[(i + 1) % order.size()])) return false;
  }
  return true;
}

// By trying all orders.
bool has_ring(const PeerReach& reach) {
  std::vector<int> order;
  for (int rank = 0; rank < reach.world; ++rank) order.push_back(rank);
  do {
    if (is_ring(reach, order)) return true;
  } while (std::next_permutation(order.begin() + 1, order.end()));
  return false;
}

}  // namespace

TEST_CASE("full meshes: ranks in their order") {
  for (const int world : {1, 2, 3, 8, 64}) {
    const PeerReach reach = reach_of(world, [](int, int) { return true; });
    std::vector<int> expected;
    for (int rank = 0; rank < world; ++rank) expected.push_back(rank);
    CHECK(ring_order(reach) == expected);
    CHECK(reach.complete());
  }
}

TEST_CASE("a ring of all ranks is found if there is one") {
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    const int world = 2 + static_cast<int>(random() % 6);
    const PeerReach reach = reach_of(world, [&](int, int) { return random() % 2 == 0; });
    std::vector<int> order = ring_order(reach);
    CAPTURE(world);
    CHECK(order.empty() != has_ring(reach));
    CHECK(is_ring(reach, order));
    std::sort(order.begin(), order.end());
    for (size_t rank = 0; rank < order.size(); ++rank) CHECK(order[rank] == static_cast<int>(rank));
  }
}

TEST_CASE("8 devices in a row that reach their neighbors only have no ring; in a circle they have one") {
  const auto row = [](int from, int to) { return std::abs(from - to) == 1; };
  CHECK(ring_order(reach_of(8, row)).empty());
  const PeerReach circle = reach_of(8, [&](int from, int to) { return row(from, to) || std::abs(from - to) == 7; });
  CHECK(ring_order(circle).size() == 8);
  CHECK_FALSE(circle.complete());
}

TEST_CASE("full meshes take posts of what is short, else passes over all memory, or the one that is asked for") {
  const PeerReach mesh = reach_of(8, [](int, int) { return true; });
  for (const bool is_short : {false, true}) {
    const auto chosen = [&](Algorithm asked) {
      return choose_device_plan(mesh, ring_order(mesh), Collective::kAllReduce, asked, is_short);
    };
    CHECK(chosen(Algorithm::kAuto) == (is_short ? Algorithm::kDirect : Algorithm::kRegistered));
    CHECK(chosen(Algorithm::kRegistered) == Algorithm::kRegistered);
    CHECK(chosen(Algorithm::kRing) == Algorithm::kRing);
    CHECK(chosen(Algorithm::kTree) == Algorithm::kAuto);
  }
}

TEST_CASE("devices that do not all reach each other: the ring, where the collective has one, else neither") {
  const PeerReach circle = reach_of(4, [](int from, int to) { return (to - from + 4) % 4 == 1; });
  const std::vector<int> order = ring_order(circle);
  for (int number = 0; number < kCollectives; ++number) {
    const auto collective = static_cast<Collective>(number);
    const Algorithm expected = ring_of_neighbors(collective) ? Algorithm::kRing : Algorithm::kAuto;
    CAPTURE(number);
    CHECK(choose_device_plan(circle, order, collective, Algorithm::kAuto, true) == expected);
    CHECK(choose_device_plan(circle, order, collective, Algorithm::kRegistered, true) == Algorithm::kAuto);
    CHECK(choose_device_plan(circle, {}, collective, Algorithm::kAuto, true) == Algorithm::kAuto);
  }
}

TEST_CASE("a rank by itself needs no ring") {
  const PeerReach alone = reach_of(1, [](int, int) { return false; });
  for (const Algorithm asked : {Algorithm::kAuto, Algorithm::kRegistered, Algorithm::kRing}) {
    CHECK(choose_device_plan(alone, ring_order(alone), Collective::kAllReduce, asked, true) == Algorithm::kRegistered);
  }
}

}  // namespace rondo
