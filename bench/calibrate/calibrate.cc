#include "bench/calibrate/calibrate.h"

#include <algorithm>

namespace rondo::bench {
namespace {

constexpr uint64_t kSmallBytes = 8;
constexpr uint64_t kLargeBytes = 32u << 20;  // past every cache that a pair of ranks has
constexpr uint64_t kFoldBytes = 256 * 1024;  // Config::slice_bytes

// The best batch counts: what disturbs a batch only ever makes it longer, and the model is of the undisturbed machine.
struct Batches {
  int warmup, batches, operations;
};
constexpr Batches kSmall{200, 25, 200};
constexpr Batches kLarge{2, 7, 1};
constexpr Batches kFolds{20, 25, 20};

template <typename Operation, typename Meet>
double best_us(CalibrationSeam& seam, const Batches& plan, Operation operation, Meet meet) {
  for (int i = 0; i < plan.warmup; ++i) operation();
  double best = 0;
  for (int batch = 0; batch < plan.batches; ++batch) {
    meet();
    const double start = seam.now_us();
    for (int i = 0; i < plan.operations; ++i) operation();
    const double us = (seam.now_us() - start) / plan.operations;
    best = batch == 0 ? us : std::min(best, us);
  }
  return best;
}

double all_reduce_us(CalibrationSeam& seam, Group& group, uint64_t bytes, const Batches& plan) {
  std::vector<float> buffer(bytes / sizeof(float), 0.0f);  // zeros stay zeros, however often they are summed
  Call call;
  call.benchmark = Benchmark::kAllReduce;
  call.input = call.output = reinterpret_cast<std::byte*>(buffer.data());
  call.count = buffer.size();
  return best_us(
      seam, plan, [&] { group.run(call); }, [&] { group.barrier(); });
}

// A direct all_reduce of two ranks takes alpha + (beta + gamma) m, the ring's alpha + beta m: it folds behind the port.
PairCost measure_pair(CalibrationSeam& seam, const PairGroups& pair) {
  PairCost cost;
  cost.alpha_us = all_reduce_us(seam, *pair.small, kSmallBytes, kSmall);
  const double large_us = all_reduce_us(seam, *pair.large, kLargeBytes, kLarge);
  cost.beta_us_per_byte = std::max(0.0, large_us - cost.alpha_us) / static_cast<double>(kLargeBytes);
  return cost;
}

}  // namespace

std::array<std::optional<std::pair<int, int>>, kPairKinds> pairs_to_measure(const Topology& topology) {
  std::array<std::optional<std::pair<int, int>>, kPairKinds> pairs;
  for (int a = 0; a < topology.world(); ++a) {
    for (int b = a + 1; b < topology.world(); ++b) {
      auto& pair = pairs[static_cast<size_t>(pair_kind(topology, a, b))];
      if (!pair) pair = {a, b};
    }
  }
  return pairs;
}

Calibration calibrate(CalibrationSeam& seam) {
  Calibration result;
  Group& world = seam.world();
  const auto pairs = pairs_to_measure(seam.topology());
  for (size_t kind = 0; kind < pairs.size(); ++kind) {
    if (!pairs[kind]) continue;
    const PairGroups groups = seam.open_pair(pairs[kind]->first, pairs[kind]->second);
    const PairCost own = groups.small ? measure_pair(seam, groups) : PairCost{};
    PairCost& cost = result.model.of(static_cast<PairKind>(kind));
    cost.alpha_us = world.max(own.alpha_us);
    cost.beta_us_per_byte = world.max(own.beta_us_per_byte);
    result.measured[kind] = true;
  }
  world.barrier();  // all pairs have ended; all fold at once, as they do in a collective
  const double fold_us = best_us(
      seam, kFolds, [&] { seam.fold(kFoldBytes); }, [] {});
  result.model.gamma_us_per_byte = world.max(fold_us / static_cast<double>(kFoldBytes));
  return result;
}

}  // namespace rondo::bench
