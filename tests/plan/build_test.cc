#include "ring/plan/build.h"

#include <doctest/doctest.h>

#include <chrono>

#include "ring/plan/describe.h"
#include "ring/plan/goal.h"
#include "rondo/error.h"
#include "tests/plan/plans.h"

namespace rondo {
namespace {

std::string steps_of(const Plan& plan) {
  std::string text;
  for (const Step& step : plan.steps) {
    text += describe(plan, step) + (step.after == kNoStep ? "" : " after " + std::to_string(step.after)) + "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("ring all_reduce is the design's page: send; reduce and send; finish; copy and send; copy") {
  PlanRequest request = request_of(Collective::kAllReduce, Algorithm::kRing, one_host(4));
  request.rank = 1;
  CHECK_EQ(steps_of(build_plan(request)),
           "input 1 -> mailbox 2\n"
           "mailbox 0* + input 0* -> mailbox 2\n"
           "mailbox 0 + input 3* -> mailbox 2\n"
           "mailbox 0 + input 2* -> output 2, mailbox 2 [finish]\n"
           "mailbox 0 -> output 1, mailbox 2 after 0\n"
           "mailbox 0 -> output 0, mailbox 2 after 1\n"
           "mailbox 0 -> output 3 after 2\n");
  for (int world = 2; world <= 64; ++world) {
    request.topology = one_host(world);
    CHECK_EQ(build_plan(request).steps.size(), 2 * world - 1);
  }
}

TEST_CASE("the facts of a collective are what its definition promises each rank") {
  constexpr int kWorld = 3, kRoot = 1;
  for (int c = 0; c < kCollectives; ++c) {
    Plan plan;
    plan.collective = static_cast<Collective>(c);
    plan.world = kWorld;
    plan.root = kRoot;
    plan.blocks = kWorld;
    if (plan.collective == Collective::kBarrier) continue;  // no rank gives or gets a block
    const CollectiveFacts& facts = facts_of(plan.collective);
    const bool has_blocks = collective_has_blocks(plan.collective);
    const std::string name = collective_name(plan.collective);
    for (plan.rank = 0; plan.rank < kWorld; ++plan.rank) {
      CAPTURE(name);
      CAPTURE(plan.rank);
      // A buffer without blocks is cut into all of them.
      const auto expected = [&](const CollectiveBuffer& buffer) {
        return buffer.rooted && plan.rank != kRoot ? 0 : buffer.blocks || !has_blocks ? kWorld : 1;
      };
      int given = 0;
      for (uint32_t block = 0; block < plan.blocks; ++block) given += holds_input(plan, block) ? 1 : 0;
      CHECK_EQ(given, expected(facts.input));
      const std::vector<Promise> promised = promises(plan);
      const bool gets_none = plan.collective == Collective::kExscan && plan.rank == 0;
      CHECK_EQ(static_cast<int>(promised.size()), gets_none ? 0 : expected(facts.output));
      for (const Promise& promise : promised) CHECK_EQ(promise.folded, facts.reduces);
    }
  }
}

TEST_CASE("a rank scales what it sends where each rank has a factor of its own") {
  PlanRequest request = request_of(Collective::kAllReduce, Algorithm::kRing, one_host(2));
  request.scale_at_source = true;
  CHECK_EQ(steps_of(build_plan(request)),
           "input 0* -> mailbox 1\n"
           "mailbox 1 + input 1* -> output 1, mailbox 1 [finish]\n"
           "mailbox 1 -> output 0 after 0\n");
}

TEST_CASE("one rank alone copies, and scales and finishes what it would have reduced") {
  for (int c = 0; c < kCollectives; ++c) {
    const Plan plan = build_plan(request_of(static_cast<Collective>(c), Algorithm::kRing, one_host(1)));
    const bool reduces = collective_reduces(static_cast<Collective>(c));
    const bool nothing =
        static_cast<Collective>(c) == Collective::kBarrier || static_cast<Collective>(c) == Collective::kExscan;
    CHECK_EQ(steps_of(plan), nothing ? "" : reduces ? "input 0* -> output 0 [finish]\n" : "input 0 -> output 0\n");
    CHECK(plan.peers.empty());
  }
}

TEST_CASE("plans are pure: equal requests give equal plans") {
  PlanRequest request = request_of(Collective::kAllReduce, Algorithm::kHierarchical, hosts_of({3, 3}));
  request.rank = 4;
  CHECK(build_plan(request) == build_plan(request));
}

TEST_CASE("requests out of range are refused, and say why") {
  const auto refusal = [](const PlanRequest& request) -> std::string {
    try {
      build_plan(request);
    } catch (const Exception& e) {
      CHECK_EQ(e.code(), ErrorCode::kInvalid);
      return e.what();
    }
    return "";
  };
  PlanRequest request = request_of(Collective::kBroadcast, Algorithm::kRing, one_host(4));
  request.root = 4;
  CHECK_EQ(refusal(request), "no such plan: root 4 of broadcast in a world of 4");
  request.root = -1;
  CHECK_EQ(refusal(request), "no such plan: root -1 of broadcast in a world of 4");
  request = request_of(Collective::kAllReduce, Algorithm::kRing, one_host(4));
  request.root = 0;
  CHECK_EQ(refusal(request), "no such plan: root 0 of all_reduce in a world of 4");
  request.root = -1;
  request.rank = 4;
  CHECK_EQ(refusal(request), "no such plan: rank 4 in a world of 4");
  request.rank = 0;
  request.algorithm = Algorithm::kAuto;
  CHECK_EQ(refusal(request), "no such plan: all_reduce has no algorithm auto for a world of 4");
  request.algorithm = Algorithm::kDirect;
  request.topology = one_host(65);
  CHECK_EQ(refusal(request), "no such plan: all_reduce has no algorithm direct for a world of 65");
  request.topology = {};
  CHECK_EQ(refusal(request), "no such plan: a world of 0 ranks, not 1 .. 65535");
}

TEST_CASE("one rank's plan in a world of 65535 is built within a second") {
  for (Algorithm algorithm : {Algorithm::kRing, Algorithm::kRecursiveDoubling, Algorithm::kTree, Algorithm::kStar}) {
    PlanRequest request = request_of(Collective::kAllReduce, algorithm, one_host(65535));
    request.rank = 0;
    const auto start = std::chrono::steady_clock::now();
    const Plan plan = build_plan(request);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    CHECK_GT(plan.steps.size(), 0);
    CHECK_LT(seconds.count(), 1.0);
  }
}

TEST_CASE("a plan in words") {
  PlanRequest request = request_of(Collective::kBroadcast, Algorithm::kRing, one_host(2));
  const Plan plan = build_plan(request);
  CHECK_EQ(describe(plan),
           "broadcast by ring, rank 0 of 2, root 0: 1 blocks, 0 scratch slots, peers 1\n"
           "     0  input 0 -> output 0, mailbox 1\n");
}

}  // namespace rondo
