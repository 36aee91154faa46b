// Ranks that are threads, whose devices share memory, and which wait in their streams' place: every collective gives
// the reference result, also of many pieces; failures and different calls end in errors.
#include <doctest/doctest.h>

#include "tests/device/island_cases.h"

namespace rondo::testing {

TEST_CASE("every collective on threads: registered, and both") {
  for (const int world : {2, 4}) {
    const auto cases = all_shapes({world, {1237}, {world / 2}});
    for (const BufferKind kind : {BufferKind::kRegistered, BufferKind::kOddRegistered}) {
      CAPTURE(world);
      CHECK(run_threads(device_group(world, "auto"), [&](Communicator& group) { run_all(group, cases, kind); }) == "");
    }
  }
}

TEST_CASE("calls of many pieces on threads") {
  const auto cases = large_shapes(3);
  CHECK(run_threads(small_windows(3), [&](Communicator& group) { run_all(group, cases); }) == "");
}

TEST_CASE("the ring on threads: every collective, many pieces, and beside other calls") {
  const auto cases = all_shapes({3, {1237}, {1}}), large = large_shapes(3);
  CHECK(run_threads(ring_group(3), [&](Communicator& group) { run_all(group, cases); }) == "");
  CHECK(run_threads(ring_group(3, 64 * 1024), [&](Communicator& group) { run_all(group, large); }) == "");
  CHECK(run_threads(small_windows(3), call_in_turn) == "");
  for (int i = 0; i < 5; ++i) CHECK(run_threads(ring_group(3), fail_between_passes) == "");
}

TEST_CASE("after a call has failed on threads no other rank touches its memory") {
  for (int i = 0; i < 10; ++i) CHECK(run_threads(device_group(3, "auto"), write_after_failure) == "");
}

TEST_CASE("a failure between passes on threads") {
  for (int i = 0; i < 5; ++i) CHECK(run_threads(device_group(3, "auto"), fail_between_passes) == "");
}

TEST_CASE("different calls on threads: both are shown") {
  CHECK(run_threads(device_group(2, "auto"), [](Communicator& group) {
          group.attach_device();
          Sum sum(group, nullptr, group.rank() == 0 ? 100 : 200);
          const Error error = error_of([&] { sum.start().wait(); });
          expect_error(error, ErrorCode::kMismatch, "count=100");
          expect_error(error, ErrorCode::kMismatch, "count=200");
          sum.value();
        }) == "");
}

}  // namespace rondo::testing
