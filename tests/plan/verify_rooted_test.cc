#include "tests/plan/prove.h"

namespace rondo {

TEST_CASE("broadcast: every algorithm, world 1..64, root, slices 1..4, is proven") {
  prove_all(Collective::kBroadcast);
}

TEST_CASE("reduce: every algorithm, world 1..64, root, slices 1..4, is proven") { prove_all(Collective::kReduce); }

}  // namespace rondo
