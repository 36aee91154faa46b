#include "tests/plan/prove.h"

namespace rondo {

TEST_CASE("all_reduce: every algorithm, worlds 1..64, slices 1..4, is proven") { prove_all(Collective::kAllReduce); }

TEST_CASE("all_reduce by star: folds of more than 64 ranks are proven") {
  for (int world : {65, 127, 128, 200}) {
    prove(request_of(Collective::kAllReduce, Algorithm::kStar, one_host(world)));
  }
}

TEST_CASE("all_reduce: some worlds past 64 are proven for those that have them") {
  for (Algorithm algorithm : {Algorithm::kRing, Algorithm::kRecursiveDoubling, Algorithm::kTree,
                              Algorithm::kHalvingDoubling, Algorithm::kDoubleTree}) {
    for (int world : {65, 96, 128}) {
      const std::vector<Plan> plans =
          plans_of_all_ranks(request_of(Collective::kAllReduce, algorithm, one_host(world)));
      CHECK_EQ(verify(plans, Scaling::kAtFold, 1).failure, "");
    }
  }
}

}  // namespace rondo
