#include <algorithm>

#include "tests/plan/prove.h"

namespace rondo {
namespace {

constexpr Collective kOneShots[] = {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                                    Collective::kAllToAll,  Collective::kBroadcast,     Collective::kReduce,
                                    Collective::kGather,    Collective::kScatter,       Collective::kBarrier};

Topology one_island_of(int world) {
  Topology topology = one_host(world);
  topology.island.assign(static_cast<size_t>(world), 0);
  return topology;
}

std::vector<Plan> plans_for(Collective collective, int world) {
  return plans_of_all_ranks(request_of(collective, Algorithm::kOneShot, one_island_of(world)));
}

bool is_signal(const Plan& plan, const Step& step) { return length_of(plan, step) == kSignalLength; }

}  // namespace

TEST_CASE("one-shot collectives: every world from 2 on is proven, over four rounds with two places in turn") {
  for (const Collective collective : kOneShots) {
    for (int world = 2; world <= kLargestWorld; ++world) {
      prove(request_of(collective, Algorithm::kOneShot, one_island_of(world)));
    }
  }
}

TEST_CASE("one-shot collectives need one island") {
  CHECK_FALSE(plan_available(Collective::kAllReduce, Algorithm::kOneShot, one_host(2)));
  CHECK_FALSE(plan_available(Collective::kAllReduce, Algorithm::kOneShot, one_island_of(65)));
  CHECK(plan_available(Collective::kBarrier, Algorithm::kOneShot, one_island_of(64)));
}

TEST_CASE("before the exchange of signals no rank may read what another posts") {
  for (const Collective collective : kOneShots) {
    if (collective == Collective::kBarrier) continue;
    std::vector<Plan> plans = plans_for(collective, 3);
    for (Plan& plan : plans) {
      std::stable_partition(plan.steps.begin(), plan.steps.end(),
                            [&](const Step& step) { return !is_signal(plan, step); });
    }
    const Verdict verdict = verify_values(plans);
    CHECK_FALSE(verdict.ok);
    INFO(verdict.failure);
    const bool unordered = verdict.failure.find("without having heard") != std::string::npos ||
                           verdict.failure.find("before it is written") != std::string::npos;
    CHECK(unordered);
  }
}

TEST_CASE("one place for a rank's post is not enough: it would be overwritten while others read it") {
  for (const Collective collective : kOneShots) {
    if (collective == Collective::kBarrier) continue;
    std::vector<Plan> plans = plans_for(collective, 3);
    for (Plan& plan : plans) {
      for (Ref& ref : plan.refs) ref.flags &= static_cast<uint8_t>(~kTurns);
      for (Step& step : plan.steps) step.barrier = length_of(plan, step) == kSignalLength ? 1 : 0;
    }
    const Verdict verdict = verify_values(plans);
    CHECK_FALSE(verdict.ok);
    INFO(verdict.failure);
    const bool overwritten = verdict.failure.find("may still be reading") != std::string::npos ||
                             verdict.failure.find("without having heard") != std::string::npos;
    CHECK(overwritten);
  }
}

}  // namespace rondo
