#include "ring/plan/choose.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "ring/plan/build.h"

namespace rondo {
namespace {

// Past these the closed forms promise what links do not keep. Direct exchanges open a link a pair, whose mailboxes grow
// small, and N-1 senders meet at one receiver: up to 64 KiB a pair, about what a socket takes in one call. Doubling and
// trees send a whole buffer at every level, in slices the size of a chunk.
constexpr uint64_t kDirectPairBytes = 64 * 1024;
constexpr uint64_t kWholeBufferBytes = 1024 * 1024;

// A message more at one rank, sent or received, costs it about a system call beside its bytes.
constexpr double kMessageUs = 1.0;

// Slices of this size follow one another down a pipeline (Config::slice_bytes).
constexpr double kPipelinedSliceBytes = 256 * 1024;

constexpr double kNever = std::numeric_limits<double>::infinity();

int levels(int n) {
  int count = 0;
  while ((1 << count) < n) ++count;
  return count;
}

struct Hosts {
  explicit Hosts(const Topology& topology) {
    std::vector<int> sizes;
    for (int h : topology.host) {
      if (static_cast<size_t>(h) >= sizes.size()) sizes.resize(static_cast<size_t>(h) + 1);
      ++sizes[static_cast<size_t>(h)];
    }
    std::erase(sizes, 0);
    count = static_cast<int>(sizes.size());
    largest = *std::max_element(sizes.begin(), sizes.end());
    equal = *std::min_element(sizes.begin(), sizes.end()) == largest;
  }
  int count, largest;
  bool equal;
};

// Costs as sums of messages in a row, bytes through the busiest port, and bytes folded in a row by one rank.
struct Cost {
  double messages = 0, port_bytes = 0, folded_bytes = 0, extra_messages = 0;
  double us(const CostModel& m) const {
    return m.alpha_us * messages + m.beta_us_per_byte * port_bytes + m.gamma_us_per_byte * folded_bytes +
           kMessageUs * extra_messages;
  }
};

Cost hierarchical_cost(double bytes, const Topology& topology) {
  const Hosts hosts(topology);
  const double h = hosts.count, l = hosts.largest;
  if (!hosts.equal) {  // through the leaders
    return {h + 2 * (h - 1) + 1, bytes * ((l - 1) + 2 * (h - 1) / h), bytes * (l - 1 + (h - 1) / h), 2 * (l - 2)};
  }
  return {h + 2 * (h - 1) + 1, 2 * bytes * ((l - 1) / l + (h - 1) / (h * l)), bytes * ((l - 1) / l + (h - 1) / (h * l)),
          h * 2 * (l - 2)};
}

Cost all_reduce_cost(Algorithm algorithm, double bytes, const Topology& topology) {
  const int world = topology.world();
  const double n = world;
  switch (algorithm) {
    case Algorithm::kRing:
      return {2 * (n - 1), 2 * (n - 1) * bytes / n, (n - 1) * bytes / n, 0};
    case Algorithm::kDirect:
      return {1, (n - 1) * bytes, (n - 1) * bytes, 2 * (n - 2)};
    case Algorithm::kRecursiveDoubling: {
      const bool power = (world & (world - 1)) == 0;
      const double exchanges = power ? levels(world) : levels(world) - 1 + 2;
      return {exchanges, exchanges * bytes, (exchanges - (power ? 0 : 1)) * bytes, 0};
    }
    case Algorithm::kTree: {
      const double depth = levels(world);
      return {2 * depth, 2 * depth * bytes, depth * bytes, 0};
    }
    case Algorithm::kHierarchical:
      return hierarchical_cost(bytes, topology);
    default:
      return {kNever, 0, 0, 0};
  }
}

// broadcast and reduce: the chain is a pipeline, trees and direct exchanges send at once.
Cost rooted_cost(Algorithm algorithm, double bytes, int world, bool folds) {
  const double n = world, depth = levels(world);
  const double fill = std::min(bytes, kPipelinedSliceBytes);
  Cost cost{kNever, 0, 0, 0};
  if (algorithm == Algorithm::kRing) cost = {n - 1, bytes + (n - 2) * fill, bytes + (n - 2) * fill, 0};
  if (algorithm == Algorithm::kTree) cost = {depth, depth * bytes, depth * bytes, 0};
  if (algorithm == Algorithm::kDirect) cost = {1, (n - 1) * bytes, (n - 1) * bytes, n - 2};
  if (!folds) cost.folded_bytes = 0;
  return cost;
}

// all_gather and reduce_scatter.
Cost scattered_cost(Algorithm algorithm, double bytes, int world, bool folds) {
  const double n = world, moved = (n - 1) * bytes / n;
  Cost cost{kNever, 0, 0, 0};
  if (algorithm == Algorithm::kRing) cost = {n - 1, moved, moved, 0};
  if (algorithm == Algorithm::kDirect) cost = {1, moved, moved, 2 * (n - 2)};
  if (!folds) cost.folded_bytes = 0;
  return cost;
}

Cost barrier_cost(Algorithm algorithm, int world) {
  if (algorithm == Algorithm::kDirect) return {1, 0, 0, 2.0 * (world - 2)};
  return {static_cast<double>(levels(world)), 0, 0, 0};
}

bool within_limits(Collective collective, Algorithm algorithm, uint64_t bytes, const Topology& topology) {
  const uint64_t world = static_cast<uint64_t>(topology.world());
  const bool scattered = collective == Collective::kReduceScatter || collective == Collective::kAllGather;
  switch (algorithm) {
    case Algorithm::kStar:
      return false;
    case Algorithm::kDirect:
      return (scattered ? bytes / world : bytes) <= kDirectPairBytes;
    case Algorithm::kRecursiveDoubling:
    case Algorithm::kTree:
      return bytes <= kWholeBufferBytes;
    case Algorithm::kHierarchical: {
      const Hosts hosts(topology);
      return hosts.count > 1 && hosts.largest > 1;
    }
    default:
      return true;
  }
}

}  // namespace

double estimated_us(Collective collective, Algorithm algorithm, uint64_t bytes, const Topology& topology,
                    bool scale_at_source, const CostModel& model) {
  if (!plan_available(collective, algorithm, topology)) return kNever;
  const int world = topology.world();
  if (world == 1) return 0;
  const double size = static_cast<double>(bytes);
  const bool folds = collective_reduces(collective);
  Cost cost;
  switch (collective) {
    case Collective::kAllReduce:
      cost = all_reduce_cost(algorithm, size, topology);
      break;
    case Collective::kBroadcast:
    case Collective::kReduce:
      cost = rooted_cost(algorithm, size, world, folds);
      break;
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      cost = scattered_cost(algorithm, size, world, folds);
      break;
    case Collective::kBarrier:
      cost = barrier_cost(algorithm, world);
      break;
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll:
      cost = {1, (world - 1.0) * size / world, 0, world - 2.0};
      break;
  }
  // The pass that scales what is sent: a ring's first block, or what goes to every peer.
  const bool blocks = algorithm == Algorithm::kRing || algorithm == Algorithm::kHierarchical;
  if (folds && scale_at_source) cost.folded_bytes += blocks ? size / world : size;
  return cost.us(model);
}

Algorithm choose(Collective collective, uint64_t bytes, const Topology& topology, bool scale_at_source,
                 const CostModel& model) {
  Algorithm best = Algorithm::kRing;
  double best_us = estimated_us(collective, best, bytes, topology, scale_at_source, model);
  for (Algorithm algorithm :
       {Algorithm::kDirect, Algorithm::kRecursiveDoubling, Algorithm::kTree, Algorithm::kHierarchical}) {
    if (!within_limits(collective, algorithm, bytes, topology)) continue;
    const double us = estimated_us(collective, algorithm, bytes, topology, scale_at_source, model);
    if (us < best_us) {
      best = algorithm;
      best_us = us;
    }
  }
  return best;
}

}  // namespace rondo
