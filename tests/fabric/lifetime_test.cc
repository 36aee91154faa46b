#include <doctest/doctest.h>

#include <thread>

#include "rondo/error.h"
#include "tests/fabric/cluster.h"
#include "tests/support/open_files_limit.h"
#include "transport/fabrics/descriptor_budget.h"

namespace rondo::testing {
namespace {

TEST_CASE("a fabric destroyed without closing its communicators, in any order, leaves nothing behind") {
  std::thread([] {}).join();  // the thread sanitizer's own thread begins with the first
  const Resources before = Resources::settled();
  {
    std::vector<Member> members = open_world(4, 1);
    for (int rank : {2, 0, 3, 1}) members[static_cast<size_t>(rank)].fabric.reset();
  }
  const Resources after = Resources::settled();
  CHECK(after.descriptors == before.descriptors);
  CHECK(after.threads == before.threads);
}

TEST_CASE("what was said of a communicator before a rank opened it is told when it opens it") {
  constexpr uint64_t kId = 9, kOther = 10;
  Config config = test_config();
  config.heartbeat_ms = 5'000;  // nothing else is said meanwhile
  config.suspicion_ms = 20'000;
  std::vector<Member> others = open_world(2, kOther, config);
  others[0].fabric->decline(kId, {0, 1}, {ErrorCode::kAborted, "rank 0 has no room", {0}});
  others[0].fabric->abort(kOther, {ErrorCode::kAborted, "said behind it", {0}});
  others[1].events->wait_failure();  // so it has come
  Member member = open_of(others[1].fabric, kId, {0, 1});
  CHECK(member.events->wait_failure(1'000).message == "rank 0 has no room");
  member.fabric->close(kId, 0, in(1'000));
  member.fabric.reset();
  destroy_world(others, kOther);
}

TEST_CASE("fault 52: a soft limit that is too low is raised; a hard one is an error that says how many are needed") {
  const size_t open = open_descriptors() - 1;  // without the look itself
  OpenFilesLimit limit(open + 10);
  CHECK(ensure_descriptors({5, 20}) >= 20);
  CHECK_THROWS_WITH_AS(ensure_descriptors({10'000'000, 20'000'000}),
                       doctest::Contains("this rank needs at least 10000000 besides"), Exception);
}

TEST_CASE("what a rank needs grows with the control plane and the ring, and at most with every link") {
  const DescriptorNeed two = descriptors_needed(2, 1);
  const DescriptorNeed many = descriptors_needed(64, 6);
  CHECK(many.least - two.least == (63 + 2 * 6) - (1 + 1));
  CHECK(many.most - two.most == (63 + 63 * 8) - (1 + 3));
  CHECK(descriptors_needed(1024, 1).least < two.least + 24);  // control connections to 2^i only
}

}  // namespace
}  // namespace rondo::testing
