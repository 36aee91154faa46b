// Plans whose slices travel in a wire format: all ranks end with the same bits, and a rank encodes a block once.
#include "tests/plan/prove.h"

namespace rondo {
namespace {

constexpr Collective kCarrying[] = {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather};

std::string coded_failure(PlanRequest request) {
  return verify_values(plans_of_all_ranks(request), Scaling::kAtFold, Wire::kCoded).failure;
}

void prove_coded(PlanRequest request) {
  request.coded = true;
  for (int chunks_in_flight : chunks_in_flight_of(request.algorithm)) {
    request.chunks_in_flight = chunks_in_flight;
    const std::string failure = coded_failure(request);
    if (!failure.empty()) FAIL_CHECK(name_of(request) << ": " << failure);
    if (plans_of_all_ranks(request)[0].scratch_slots > 0) check_verdict(request, verify(plans_of_all_ranks(request)));
  }
}

}  // namespace

TEST_CASE("wire formats: every plan that may carry one is proven, worlds 1..64") {
  int proven = 0, worlds = 0;
  for (int world = 1; world <= kLargestWorld; ++world) worlds += is_proven(world);
  for (const Collective collective : kCarrying) {
    for (int world = 1; world <= kLargestWorld; ++world) {
      if (!is_proven(world)) continue;
      for (int a = 1; a < kAlgorithms; ++a) {
        const Algorithm algorithm = static_cast<Algorithm>(a);
        if (!carries_wire_format(collective, algorithm, one_host(world))) continue;
        prove_coded(request_of(collective, algorithm, one_host(world)));
        ++proven;
      }
    }
  }
  CHECK_EQ(proven, worlds * (6 + 4 + 2));
}

TEST_CASE("wire formats: the hierarchy is proven on hosts of equal and unequal sizes") {
  const std::vector<std::vector<int>> shapes = {{2, 2}, {3, 3, 3}, {1, 2, 3}, {4, 1}, {8, 8, 8, 8}, {5, 7, 2, 1}};
  for (const std::vector<int>& shape : shapes) {
    CHECK(carries_wire_format(Collective::kAllReduce, Algorithm::kHierarchical, hosts_of(shape)));
    prove_coded(request_of(Collective::kAllReduce, Algorithm::kHierarchical, hosts_of(shape)));
  }
  CHECK_FALSE(carries_wire_format(Collective::kAllReduce, Algorithm::kHierarchical, hosts_of({66, 66})));
}

TEST_CASE("wire formats: broadcasts carry the one that loses nothing by every plan over links") {
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kDirect, Algorithm::kTree, Algorithm::kDoubleTree}) {
    CHECK(carries_wire_format(Collective::kBroadcast, algorithm, one_host(4)));
  }
  for (const Algorithm algorithm : {Algorithm::kStaged, Algorithm::kWindow, Algorithm::kOneShot, Algorithm::kStar}) {
    CHECK_FALSE(carries_wire_format(Collective::kBroadcast, algorithm, one_host(4)));
  }
}

TEST_CASE("wire formats: plans that would end with different bits are refused") {
  PlanRequest direct = request_of(Collective::kAllReduce, Algorithm::kDirect, one_host(2));
  CHECK(coded_failure(direct).find("output 0 is folded as {finish([<r0[0]>]* + r1[0]*)}") != std::string::npos);
  // The caller's memory may not keep what a contribution was coded as: its type may be narrower.
  direct.coded = true;
  std::vector<Plan> plans = plans_of_all_ranks(direct);
  for (Plan& plan : plans) {
    for (Ref& ref : plan.refs) ref.space = ref.space == Space::kScratch ? Space::kOutput : ref.space;
  }
  const std::string narrowed = verify_values(plans, Scaling::kAtFold, Wire::kCoded).failure;
  CHECK(narrowed.find("output 0 is folded as {finish([<r0[0]>]* + {[<r1[0]>]}*)}") != std::string::npos);
  const PlanRequest doubling = request_of(Collective::kAllReduce, Algorithm::kRecursiveDoubling, one_host(4));
  CHECK(coded_failure(doubling) != "");
  const PlanRequest halving = request_of(Collective::kAllGather, Algorithm::kHalvingDoubling, one_host(4));
  CHECK(coded_failure(halving) != "");
}

TEST_CASE("wire formats: a block that a rank encodes twice is refused") {
  const PlanRequest pat = request_of(Collective::kAllGather, Algorithm::kPat, one_host(4));
  CHECK(coded_failure(pat).find("encodes block 0 a second time") != std::string::npos);
}

}  // namespace rondo
