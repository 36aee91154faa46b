#include "ring/plan/pair_costs.h"

#include <algorithm>

namespace rondo {
namespace {

struct Pairs {
  const Topology& topology;
  const CostModel& model;

  const PairCost& of(int a, int b) const { return model.of(pair_kind(topology, a, b)); }
  // The dearest of (a(i), b(i)), i below count.
  template <typename A, typename B>
  PairCost dearest(int count, A a, B b) const {
    PairCost worst;
    for (int i = 0; i < count; ++i) worst = dearer(worst, of(a(i), b(i)));
    return worst;
  }
};

// How many ranks live where rank r does: on its host, and of these in its island.
struct Neighbors {
  explicit Neighbors(const Topology& topology) : topology_(topology) {
    for (int r = 0; r < topology.world(); ++r) {
      count(hosts_, topology.host[static_cast<size_t>(r)]);
      if (!topology.island.empty()) count(islands_, topology.island[static_cast<size_t>(r)]);
    }
  }
  int on_host(int r) const { return hosts_[static_cast<size_t>(topology_.host[static_cast<size_t>(r)])]; }
  int in_island(int r) const {
    const int island = topology_.island.empty() ? -1 : topology_.island[static_cast<size_t>(r)];
    return island < 0 ? 1 : islands_[static_cast<size_t>(island)];
  }
  std::vector<int> host_sizes() const {
    std::vector<int> sizes = hosts_;
    std::erase(sizes, 0);
    return sizes;
  }

 private:
  static void count(std::vector<int>& counts, int index) {
    if (index < 0) return;
    if (static_cast<size_t>(index) >= counts.size()) counts.resize(static_cast<size_t>(index) + 1);
    ++counts[static_cast<size_t>(index)];
  }
  const Topology& topology_;
  std::vector<int> hosts_, islands_;
};

}  // namespace

PairCosts::PairCosts(const Topology& topology, const CostModel& model) : world(topology.world()), members(world) {
  const Pairs pairs{topology, model};
  const auto same = [](int i) { return i; };
  while ((1 << levels) < world) ++levels;
  for (int k = 0; k < levels; ++k) {
    shift.push_back(pairs.dearest(world, same, [&](int r) { return (r + (1 << k)) % world; }));
  }
  if (world > 1) ring = shift[0];
  const auto rank_of = [&](int m) { return members.rank_of(m); };
  for (int k = 0; k < members.exchanges; ++k) {
    exchange.push_back(pairs.dearest(members.count, rank_of, [&](int m) { return rank_of(m ^ (1 << k)); }));
  }
  companion = pairs.dearest(
      members.extra, [](int i) { return 2 * i; }, [](int i) { return 2 * i + 1; });

  // A port that sends to all others in turn is busy for the sum of their bytes: the dearest rank's sum counts.
  const Neighbors neighbors(topology);
  for (int r = 0; r < world; ++r) {
    const int memory = neighbors.in_island(r) - 1;
    const int loopback = neighbors.on_host(r) - 1 - memory, network = world - neighbors.on_host(r);
    PairCost on_host;
    if (memory > 0) on_host = dearer(on_host, model.memory);
    if (loopback > 0) on_host = dearer(on_host, model.loopback);
    inside = dearer(inside, on_host);
    if (network > 0) between = model.network;
    all_beta_us_per_byte = std::max(all_beta_us_per_byte, memory * model.memory.beta_us_per_byte +
                                                              loopback * model.loopback.beta_us_per_byte +
                                                              network * model.network.beta_us_per_byte);
  }
  any = dearer(inside, between);
  const std::vector<int> sizes = neighbors.host_sizes();
  hosts = static_cast<int>(sizes.size());
  over_loopback = loopback(topology);
  // All ranks are on one host here, whose cores each of them knows alike.
  if (over_loopback && crowded(topology, 0, world)) crowded_cores = topology.cores.front();
  largest_host = *std::max_element(sizes.begin(), sizes.end());
  equal_hosts = *std::min_element(sizes.begin(), sizes.end()) == largest_host;
}

}  // namespace rondo
