#include "ring/plan/peer_rates.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace rondo {
namespace {

constexpr int kMostSteps = 20'000;
// Classes of rates: four to a power of two.
constexpr double kClassesOfDoubling = 4;

int class_of(uint64_t rate) {
  return rate == 0 ? -1 : static_cast<int>(std::log2(static_cast<double>(rate)) * kClassesOfDoubling);
}

double microseconds(double bytes, uint64_t mib_per_s) {
  return bytes / (static_cast<double>(mib_per_s) * 1.048576);  // a MiB/s is 1.048576 bytes a microsecond
}

// A ring over pairs of at least this class, by depth first search.
class RingSearch {
 public:
  RingSearch(const PeerRates& rates, int least)
      : rates_(rates), least_(least), used_(static_cast<size_t>(rates.world)) {}

  std::vector<int> run() {
    order_ = {0};
    used_[0] = true;
    return extend() ? order_ : std::vector<int>{};
  }

 private:
  bool reaches(int from, int to) const { return class_of(rates_.of(from, to)) >= least_; }
  // Whom `last` reaches, the fastest class first, in it the next ranks first.
  std::vector<int> candidates(int last) const {
    std::vector<int> found;
    for (int k = 1; k < rates_.world; ++k) {
      const int next = (last + k) % rates_.world;
      if (!used_[static_cast<size_t>(next)] && reaches(last, next)) found.push_back(next);
    }
    std::stable_sort(found.begin(), found.end(),
                     [&](int a, int b) { return class_of(rates_.of(last, a)) > class_of(rates_.of(last, b)); });
    return found;
  }
  bool extend() {
    const int last = order_.back();
    if (order_.size() == used_.size()) return reaches(last, 0);
    for (const int next : candidates(last)) {
      if (++steps_ > kMostSteps) return false;
      order_.push_back(next);
      used_[static_cast<size_t>(next)] = true;
      if (extend()) return true;
      order_.pop_back();
      used_[static_cast<size_t>(next)] = false;
    }
    return false;
  }

  const PeerRates& rates_;
  const int least_;
  std::vector<bool> used_;
  std::vector<int> order_;
  int steps_ = 0;
};

// Of the whole buffer, how much goes from each rank to each other one, in passes over the memory of all.
double share_of(const PeerRates& rates, const DeviceCall& call, int from, int to) {
  const double block = 1.0 / rates.world;
  switch (call.collective) {
    case Collective::kAllReduce:
      return 2 * block;  // read by the rank that folds, and the result written to all
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return block;
    case Collective::kReduce:
      return to == call.root ? 2 * block : block;
    case Collective::kBroadcast:
      return from == call.root ? 1 : 0;
    case Collective::kScatter:
      return from == call.root ? block : 0;
    case Collective::kGather:
      return to == call.root ? block : 0;
    case Collective::kBarrier:
    case Collective::kScan:
    case Collective::kExscan:
      break;
  }
  return 0;
}

}  // namespace

bool PeerRates::complete() const {
  for (int from = 0; from < world; ++from) {
    for (int to = 0; to < world; ++to) {
      if (from != to && of(from, to) == 0) return false;
    }
  }
  return true;
}

std::vector<int> ring_order(const PeerRates& rates) {
  if (rates.world == 1) return {0};
  std::set<int, std::greater<>> classes;
  for (const uint64_t rate : rates.mib_per_s) classes.insert(class_of(rate));
  for (const int least : classes) {
    if (least < 0) break;
    if (std::vector<int> order = RingSearch(rates, least).run(); !order.empty()) return order;
  }
  return {};
}

double registered_microseconds(const PeerRates& rates, const DeviceCall& call) {
  const auto bytes = static_cast<double>(call.bytes);
  double longest = 0;
  for (int rank = 0; rank < rates.world; ++rank) {
    double in = 0, out = 0;
    for (int peer = 0; peer < rates.world; ++peer) {
      if (peer == rank) continue;
      in += microseconds(share_of(rates, call, peer, rank) * bytes, rates.of(peer, rank));
      out += microseconds(share_of(rates, call, rank, peer) * bytes, rates.of(rank, peer));
    }
    longest = std::max({longest, in, out});
  }
  return longest + kPassMicroseconds;
}

double ring_microseconds(const PeerRates& rates, std::span<const int> order, const DeviceCall& call) {
  uint64_t slowest = UINT64_MAX;
  for (size_t place = 0; place < order.size(); ++place) {
    slowest = std::min(slowest, rates.of(order[place], order[(place + 1) % order.size()]));
  }
  const double hops = rates.world - 1;
  const bool chain = call.collective == Collective::kBroadcast || call.collective == Collective::kReduce;
  const double steps = call.collective == Collective::kAllReduce ? 2 * hops : hops;
  const double block = static_cast<double>(call.bytes) / (chain ? 1 : rates.world);
  return steps * (microseconds(block, slowest) + kPassMicroseconds);
}

bool ring_of_neighbors(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kBroadcast:
    case Collective::kReduce:
      return true;
    default:
      return false;
  }
}

Algorithm choose_device_plan(const PeerRates& rates, std::span<const int> order, const DeviceCall& call,
                             Algorithm asked) {
  const auto may = [&](Algorithm algorithm) { return asked == Algorithm::kAuto || asked == algorithm; };
  const bool alone = rates.world == 1 && may(Algorithm::kRing);
  const bool passes = call.collective != Collective::kBarrier && !collective_scans(call.collective);
  const bool registered = (may(Algorithm::kRegistered) || alone) && passes && rates.complete();
  const bool ring = may(Algorithm::kRing) && rates.world > 1 && !order.empty() && ring_of_neighbors(call.collective);
  if (registered && ring) {
    const bool faster = registered_microseconds(rates, call) <= ring_microseconds(rates, order, call);
    return faster ? Algorithm::kRegistered : Algorithm::kRing;
  }
  return registered ? Algorithm::kRegistered : ring ? Algorithm::kRing : Algorithm::kAuto;
}

}  // namespace rondo
