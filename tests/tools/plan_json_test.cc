// What plan_dump --json writes, for programs that draw plans.
#include "tools/plan/plan_json.h"

#include <doctest/doctest.h>

#include "ring/plan/build.h"

namespace rondo {
namespace {

Plan plan_of(Collective collective, Algorithm algorithm, int root) {
  PlanRequest request;
  request.collective = collective;
  request.algorithm = algorithm;
  request.root = root;
  request.topology = {{0, 0}, {0, 0}};  // two ranks of one island
  return build_plan(request);
}

}  // namespace

TEST_CASE("a plan as one object: its call, and the steps of each lane") {
  CHECK_EQ(
      plan_json(plan_of(Collective::kBroadcast, Algorithm::kRing, 0)).dump(),
      R"({"collective":"broadcast","algorithm":"ring","rank":0,"world":2,"root":0,"chunks":1,)"
      R"("scratch_slots":0,"posts":[],"max_peers":1,"peers":[1],"lanes":[[{"sources":[{"space":"input","chunk":0}],)"
      R"("targets":[{"space":"output","chunk":0},{"space":"mailbox","peer":1,"chunk":0}]}]]})");
}

TEST_CASE("windows, barriers and flags") {
  const nlohmann::ordered_json lane = plan_json(plan_of(Collective::kAllReduce, Algorithm::kStaged, -1))["lanes"][0];
  REQUIRE_EQ(lane.size(), 7);
  CHECK_EQ(lane[1].dump(), R"({"sources":[],"targets":[{"space":"mailbox","peer":1,"chunk":0}],)"
                           R"("each_round":true,"barrier":1})");
  CHECK_EQ(lane[3].dump(), R"({"sources":[{"space":"input","chunk":0,"scale":true},)"
                           R"({"space":"window","peer":1,"chunk":0,"of":"staging","scale":true}],)"
                           R"("targets":[{"space":"output","chunk":0},)"
                           R"({"space":"window","peer":0,"chunk":0,"of":"staging"}],"finish":true})");
}

}  // namespace rondo
