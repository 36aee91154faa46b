#include <set>

#include "tests/plan/prove.h"

namespace rondo {
namespace {

// Every rank's plan without the steps that wait or signal at position `index` (a barrier is two of them).
std::vector<Plan> without_steps(std::vector<Plan> plans, uint32_t first, uint32_t count) {
  for (Plan& plan : plans) {
    plan.steps.erase(plan.steps.begin() + first, plan.steps.begin() + first + count);
  }
  return plans;
}

}  // namespace

// Every root up to world `all_roots`, then a few: folds of all roots are the same but for the numbers.
void prove_windows(Collective collective, int all_roots) {
  for (const Algorithm algorithm : {Algorithm::kStaged, Algorithm::kPull, Algorithm::kRegistered}) {
    for (int world = 2; world <= kLargestWorld; ++world) {
      if (!is_proven(world)) continue;
      std::set<int> roots{0};
      if (collective_has_root(collective)) roots.insert({1, world / 2, world - 1});
      for (int root = 0; collective_has_root(collective) && root < world && world <= all_roots; ++root)
        roots.insert(root);
      // Contributions read where they lie cannot be scaled by their own ranks.
      const Scalings scalings = algorithm == Algorithm::kStaged ? Scalings::kBoth : Scalings::kAtFold;
      const PlanRequest request = request_of(collective, algorithm, one_island_of(world));
      if (collective_has_root(collective)) {
        prove_roots(request, roots, scalings);
      } else {
        prove(request, scalings);
      }
    }
  }
}

TEST_CASE("all_reduce, reduce_scatter, all_gather, all_to_all over windows: worlds 2..64 are proven") {
  for (const Collective c :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather, Collective::kAllToAll}) {
    prove_windows(c, 0);
  }
}

TEST_CASE("broadcast, gather, scatter over windows: worlds 2..64, every root are proven") {
  for (const Collective c : {Collective::kBroadcast, Collective::kGather, Collective::kScatter}) prove_windows(c, 64);
}

TEST_CASE("reduce over windows: worlds 2..64, every root up to world 16 and four beyond, are proven") {
  prove_windows(Collective::kReduce, 16);
}

TEST_CASE("windows need an island: all ranks of it, and at most 64") {
  const Topology mixed = hosts_of({2, 2});
  Topology two = mixed;
  two.island = {0, 0, 1, 1};
  for (const Topology& topology : {one_host(4), mixed, two, one_island_of(65)}) {
    CHECK_FALSE(plan_available(Collective::kAllReduce, Algorithm::kStaged, topology));
  }
  CHECK(plan_available(Collective::kAllReduce, Algorithm::kStaged, one_island_of(64)));
  CHECK_FALSE(plan_available(Collective::kBarrier, Algorithm::kStaged, one_island_of(4)));
}

TEST_CASE("a plan that reads or overwrites a window without a signal is refused, whichever barrier is left out") {
  for (const Algorithm algorithm : {Algorithm::kStaged, Algorithm::kPull, Algorithm::kRegistered}) {
    for (const Collective collective :
         {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather, Collective::kAllToAll}) {
      const std::vector<Plan> plans = plans_of_all_ranks(request_of(collective, algorithm, one_island_of(3)));
      REQUIRE(verify(plans).ok);
      int broken = 0;
      for (uint32_t s = 0; s + 1 < plans[0].steps.size(); ++s) {
        if (!is_signal(plans[0], plans[0].steps[s]) || !is_signal(plans[0], plans[0].steps[s + 1])) continue;
        const Verdict verdict = verify_values(without_steps(plans, s, 2));
        CHECK_FALSE(verdict.ok);
        INFO(verdict.failure);
        const bool ordered = verdict.failure.find("heard") == std::string::npos &&
                             verdict.failure.find("may still") == std::string::npos &&
                             verdict.failure.find("may be") == std::string::npos &&
                             verdict.failure.find("before it is written") == std::string::npos &&
                             verdict.failure.find("without a mailbox") == std::string::npos;
        CHECK_FALSE(ordered);
        ++broken;
        ++s;
      }
      CHECK_GE(broken, 1);
    }
  }
}

TEST_CASE("barriers of the first round only do not order the later ones") {
  std::vector<Plan> plans =
      plans_of_all_ranks(request_of(Collective::kAllGather, Algorithm::kStaged, one_island_of(3)));
  for (Plan& plan : plans) {
    for (Step& step : plan.steps) step.flags &= static_cast<uint16_t>(~kEachRound);
  }
  const Verdict verdict = verify_values(plans);
  CHECK_FALSE(verdict.ok);
  INFO(verdict.failure);
  CHECK_NE(verdict.failure.find("a barrier in the first round only"), std::string::npos);
}

TEST_CASE("a rank does not write another's input, nor a block that is not that rank's") {
  std::vector<Plan> plans =
      plans_of_all_ranks(request_of(Collective::kAllReduce, Algorithm::kRegistered, one_island_of(3)));
  Ref& target = plans[1].refs[plans[1].steps[0].first + plans[1].steps[0].sources + 1];
  REQUIRE_EQ(target.flags, kPeerOutput);
  target.flags = 0;
  CHECK_NE(verify_values(plans).failure.find("writes the caller's window 2 input 1"), std::string::npos);

  plans = plans_of_all_ranks(request_of(Collective::kReduceScatter, Algorithm::kPull, one_island_of(3)));
  Ref& source = plans[1].refs[plans[1].steps[0].first];
  source = {Space::kWindow, kPeerOutput, 0, 1};
  CHECK_NE(verify_values(plans).failure.find("touches window 0 output 1, which is not that rank's"), std::string::npos);
}

TEST_CASE("barriers are as many on all ranks, and come in order") {
  const std::vector<Plan> good =
      plans_of_all_ranks(request_of(Collective::kReduce, Algorithm::kStaged, one_island_of(3), 1));
  REQUIRE(verify(good).ok);

  std::vector<Plan> plans = good;
  plans[2].steps.pop_back();  // without the last barrier
  CHECK_NE(verify(plans).failure.find("another number of barriers"), std::string::npos);

  plans = good;
  for (Plan& plan : plans) {
    for (Step& step : plan.steps) {
      if (step.barrier == 1) step.barrier = 9;
    }
  }
  CHECK_NE(verify(plans).failure.find("a barrier after a later one"), std::string::npos);
}

}  // namespace rondo
