#include "tests/plan/prove.h"

namespace rondo {

TEST_CASE("broadcast: every algorithm, world 1..64, root, lanes 1..4, slices 1..4, is proven") {
  prove_all(Collective::kBroadcast);
}

TEST_CASE("reduce: every algorithm, world 1..64, root, lanes 1..4, slices 1..4, is proven") {
  prove_all(Collective::kReduce);
}

TEST_CASE("reduce by a star of more ranks than a step has sources, whoever is the root") {
  for (const int root : {0, 63, 64, 65}) prove(request_of(Collective::kReduce, Algorithm::kStar, one_host(66), root));
  for (const int root : {0, 64, 127, 129})
    prove(request_of(Collective::kReduce, Algorithm::kStar, one_host(130), root));
}

}  // namespace rondo
