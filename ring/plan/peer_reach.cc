#include "ring/plan/peer_reach.h"

#include <algorithm>

namespace rondo {
namespace {

// The search is exponential at worst. Devices of one host form few patterns, which need no more than some hundred
// steps.
constexpr int kMostSteps = 20'000;

// By depth first search.
class RingSearch {
 public:
  explicit RingSearch(const PeerReach& reach) : reach_(reach), used_(static_cast<size_t>(reach.world)) {}

  std::vector<int> run() {
    order_ = {0};
    used_[0] = true;
    return extend() ? order_ : std::vector<int>{};
  }

 private:
  // True: order_ is a whole ring. False leaves it as it was; once kMostSteps are made, every way is given up.
  bool extend() {
    const int last = order_.back();
    if (order_.size() == used_.size()) return reach_.of(last, 0);
    for (int k = 1; k < reach_.world; ++k) {
      const int next = (last + k) % reach_.world;
      if (used_[static_cast<size_t>(next)] || !reach_.of(last, next)) continue;
      if (++steps_ > kMostSteps) return false;
      order_.push_back(next);
      used_[static_cast<size_t>(next)] = true;
      if (extend()) return true;
      order_.pop_back();
      used_[static_cast<size_t>(next)] = false;
    }
    return false;
  }

  const PeerReach& reach_;
  std::vector<bool> used_;
  std::vector<int> order_;
  int steps_ = 0;
};

}  // namespace

bool PeerReach::complete() const {
  for (int from = 0; from < world; ++from) {
    for (int to = 0; to < world; ++to) {
      if (from != to && !of(from, to)) return false;
    }
  }
  return true;
}

std::vector<int> ring_order(const PeerReach& reach) {
  return reach.world == 1 ? std::vector<int>{0} : RingSearch(reach).run();
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

Algorithm choose_device_plan(const PeerReach& reach, std::span<const int> order, Collective collective, Algorithm asked,
                             bool is_short) {
  const auto may = [&](Algorithm algorithm) { return asked == Algorithm::kAuto || asked == algorithm; };
  const bool alone = reach.world == 1 && may(Algorithm::kRing);
  const bool passes = collective != Collective::kBarrier && !collective_scans(collective);
  if ((may(Algorithm::kRegistered) || alone) && passes && reach.complete()) {
    const bool posts = is_short && reach.world > 1 && asked == Algorithm::kAuto;
    return posts ? Algorithm::kDirect : Algorithm::kRegistered;
  }
  const bool ring = may(Algorithm::kRing) && !order.empty() && ring_of_neighbors(collective);
  return ring ? Algorithm::kRing : Algorithm::kAuto;
}

}  // namespace rondo
