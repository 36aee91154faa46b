// Lists and batches between processes.
#include <doctest/doctest.h>

#include "tests/engine/batch_cases.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {

TEST_CASE("lists and batches between processes") {
  // Proves: the same over sockets and shared memory, where fused operations run on registered memory.
  for (const int world : {2, 3}) {
    CAPTURE(world);
    RankGroup shape = ranks_over(RONDO_TEST_TRANSPORT, world);
    shape.config.bucket_bytes = kTestBucketBytes;
    CHECK(run_processes(shape, [](Communicator& group) {
            for (uint64_t seed = 1; seed <= 5; ++seed) run_lists(group, seed * 1000);
            for (uint64_t seed = 1; seed <= 6; ++seed) run_call_group(group, seed);
          }) == "");
  }
}

}  // namespace rondo::testing
