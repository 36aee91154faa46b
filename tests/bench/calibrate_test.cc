#include "bench/calibrate/calibrate.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/bench/thread_group.h"

namespace rondo::bench {
namespace {

constexpr PairCost kMemory{0.25, 1.0 / 8000, 0.1}, kLoopback{4, 1.0 / 2500, 1}, kNetwork{30, 1.0 / 1200, 1};
constexpr double kGamma = 1.0 / 9000;

// A pair whose all_reduces take exactly what a cost model says, on the seam's own clock; every fifth is disturbed.
class ClockedPair : public Group {
 public:
  ClockedPair(int rank, PairCost cost, double gamma, double& clock_us)
      : rank_(rank), cost_(cost), gamma_(gamma), clock_us_(clock_us) {}
  int rank() const override { return rank_; }
  int size() const override { return 2; }
  void run(const Call& call) override {
    const double bytes = static_cast<double>(call.count) * 4;
    clock_us_ += cost_.alpha_us + (cost_.beta_us_per_byte + gamma_) * bytes + (++runs_ % 501 == 0 ? 1e5 : 0);
  }
  std::string algorithm(const Call&) const override { return "clocked"; }
  void barrier() override {}
  double max(double value) override { return value; }
  uint64_t sum(uint64_t value) override { return value; }

 private:
  int rank_;
  PairCost cost_;
  double gamma_;
  double& clock_us_;
  int runs_ = 0;
};

class ClockedSeam : public CalibrationSeam {
 public:
  ClockedSeam(Group& world, Topology topology) : world_(world), topology_(std::move(topology)) {}
  Group& world() override { return world_; }
  const Topology& topology() const override { return topology_; }
  PairGroups open_pair(int a, int b) override {
    if (world_.rank() != a && world_.rank() != b) return {};
    const PairKind kind = pair_kind(topology_, a, b);
    const PairCost cost = kind == PairKind::kMemory ? kMemory : kind == PairKind::kLoopback ? kLoopback : kNetwork;
    const int rank = world_.rank() == a ? 0 : 1;
    return {std::make_unique<ClockedPair>(rank, cost, kGamma, clock_us_),
            std::make_unique<ClockedPair>(rank, cost, 0, clock_us_)};
  }
  double now_us() override { return clock_us_; }
  void fold(uint64_t bytes) override { clock_us_ += kGamma * static_cast<double>(bytes); }

 private:
  Group& world_;
  Topology topology_;
  double clock_us_ = 0;
};

}  // namespace

TEST_CASE("a calibration finds the costs that its world has, the same on every rank, and keeps the others") {
  Topology topology;
  topology.host = {0, 0, 0, 1};
  topology.island = {0, 0, -1, -1};
  ThreadWorld threads(4);
  std::array<Calibration, 4> results;
  threads.run([&](Group& group) {
    ClockedSeam seam(group, topology);
    results[static_cast<size_t>(group.rank())] = calibrate(seam);
  });
  for (const Calibration& result : results) {
    CHECK_EQ(result.model.hash(), results[0].model.hash());
    CHECK(result.measured == std::array<bool, kPairKinds>{true, true, true});
    const std::pair<PairCost, PairCost> found[] = {
        {result.model.memory, kMemory}, {result.model.loopback, kLoopback}, {result.model.network, kNetwork}};
    for (const auto& [measured, real] : found) {
      CHECK_EQ(measured.alpha_us, doctest::Approx(real.alpha_us).epsilon(0.02));
      CHECK_EQ(measured.beta_us_per_byte, doctest::Approx(real.beta_us_per_byte).epsilon(0.001));
    }
    CHECK_EQ(result.model.gamma_us_per_byte, doctest::Approx(kGamma));
    CHECK_EQ(result.model.memory.message_us, CostModel{}.memory.message_us);
    CHECK(CostModel::parse(result.model.describe()) == result.model);
  }
}

TEST_CASE("kinds of pairs that the world does not have keep their defaults") {
  ThreadWorld threads(2);
  Calibration result;
  threads.run([&](Group& group) {
    ClockedSeam seam(group, Topology{{0, 0}, {}});
    Calibration own = calibrate(seam);
    if (group.rank() == 0) result = own;
  });
  CHECK(result.measured == std::array<bool, kPairKinds>{false, true, false});
  CHECK(result.model.memory == CostModel{}.memory);
  CHECK(result.model.network == CostModel{}.network);
}

TEST_CASE("pairs to measure: the first of each kind") {
  Topology topology;
  topology.host = {0, 1, 1, 0, 1};
  topology.island = {-1, 0, 1, -1, 0};
  const auto pairs = pairs_to_measure(topology);
  CHECK(pairs[0] == std::pair(1, 4));
  CHECK(pairs[1] == std::pair(0, 3));
  CHECK(pairs[2] == std::pair(0, 1));
}

}  // namespace rondo::bench
