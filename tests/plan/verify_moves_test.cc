#include "tests/plan/prove.h"

namespace rondo {

// Each has its prove_all() here, in verify_all_reduce_test or in verify_rooted_test.
static_assert(kCollectives == 11);

TEST_CASE("gather and scatter: every algorithm, world 1..64, root, slices 1..4, are proven") {
  prove_all(Collective::kGather);
  prove_all(Collective::kScatter);
}

TEST_CASE("all_gather, reduce_scatter, all_to_all, barrier: worlds 1..64, slices 1..4, are proven") {
  prove_all(Collective::kAllGather);
  prove_all(Collective::kReduceScatter);
  prove_all(Collective::kAllToAll);
  prove_all(Collective::kBarrier);
  prove_all(Collective::kScan);
  prove_all(Collective::kExscan);
}

}  // namespace rondo
