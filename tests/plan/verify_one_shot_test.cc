#include <algorithm>

#include "ring/plan/structure.h"
#include "tests/plan/prove.h"

namespace rondo {
namespace {

constexpr Collective kOneShots[] = {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                                    Collective::kAllToAll,  Collective::kBroadcast,     Collective::kReduce,
                                    Collective::kGather,    Collective::kScatter,       Collective::kBarrier,
                                    Collective::kScan,      Collective::kExscan};

std::vector<Plan> plans_for(Collective collective, int world) {
  return plans_of_all_ranks(request_of(collective, Algorithm::kOneShot, one_island_of(world)));
}

}  // namespace

TEST_CASE("one-shot collectives: every world from 2 on is proven, over four rounds with two places in turn") {
  for (const Collective collective : kOneShots) {
    for (int world = 2; world <= kLargestWorld; ++world) {
      if (!is_proven(world)) continue;
      prove(request_of(collective, Algorithm::kOneShot, one_island_of(world)));
      uint64_t most = 1;
      const Plan plan = plans_for(collective, world)[0];
      for (const std::vector<uint32_t>& post : plan.posts) {
        most = std::max<uint64_t>(most, post.size());
      }
      CHECK_EQ(most, most_posted_blocks(collective, world));
    }
  }
}

TEST_CASE("one-shot collectives need one island") {
  CHECK_FALSE(plan_available(Collective::kAllReduce, Algorithm::kOneShot, one_host(2)));
  CHECK_FALSE(plan_available(Collective::kAllReduce, Algorithm::kOneShot, one_island_of(65)));
  CHECK(plan_available(Collective::kBarrier, Algorithm::kOneShot, one_island_of(64)));
}

// What the checks of `plans` say after `change`, which changes an all_to_all of three ranks.
template <typename Change>
std::string failure_after(Change change) {
  std::vector<Plan> plans = plans_for(Collective::kAllToAll, 3);
  change(plans);
  return check_structure(plans).value_or("");
}

TEST_CASE("places in posts: equal on all ranks, each filled once and in order, and none but these is used") {
  CHECK(failure_after([](auto&) {}) == "");
  const std::string other = failure_after([](auto& plans) { std::swap(plans[1].posts[0][0], plans[1].posts[0][1]); });
  CHECK(other == "plan 1 has other posts");
  const std::string order = failure_after([](auto& plans) {
    for (Plan& plan : plans) std::swap(plan.posts[0][0], plan.posts[0][1]);
  });
  CHECK(order == "rank 0 posts other blocks than its post has, or in another order");
  const std::string twice = failure_after([](auto& plans) {
    for (Plan& plan : plans) plan.posts[0][1] = plan.posts[0][0];
    for (Ref& ref : plans[0].refs) {
      if ((ref.flags & kTurns) != 0 && ref.peer == 0) ref.block = plans[0].posts[0][0];
    }
    for (const Step& step : plans[0].steps) {
      if (step.sources == 1 && step.targets == 1 && (plans[0].refs[step.first + 1].flags & kTurns) != 0) {
        plans[0].refs[step.first].block = plans[0].refs[step.first + 1].block;
      }
    }
  });
  CHECK(twice == "rank 0 posts a block twice");
  const std::string longer = failure_after([](auto& plans) {
    for (Plan& plan : plans) plan.posts[2].push_back(2);
  });
  CHECK(longer == "rank 2 posts other blocks than its post has, or in another order");
  const std::string absent = failure_after([](auto& plans) {
    for (Plan& plan : plans) plan.posts[2] = {0};
  });
  CHECK(absent.find("which is not in that post") != std::string::npos);
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
      plan.posts.clear();
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
