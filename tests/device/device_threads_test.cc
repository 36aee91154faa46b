// Ranks that are threads of one process, and share a queue of the device, in which a wait of one rank would stand
// before the copies of the others: every collective on device memory gives the reference result.
#include <doctest/doctest.h>

#include "tests/device/message_cases.h"

namespace rondo::testing {

TEST_CASE("every collective on threads") {
  for (int world = 1; world <= 5; ++world) {
    CAPTURE(world);
    const auto cases = all_shapes({world, {1, 1237}, {world - 1}});
    CHECK(run_threads(device_group(world, "auto"), [&](Communicator& group) { run_on_device(group, cases); }) == "");
  }
}

TEST_CASE("buffers of several pieces on threads") {
  CollectiveCase what;
  what.world = 3;
  what.count = 3'000'001;
  CHECK(run_threads(device_group(3, "auto"), [&](Communicator& group) { run_on_device(group, {what}); }) == "");
}

TEST_CASE("messages on threads") {
  for (const int world : {1, 2, 3}) {
    CAPTURE(world);
    CHECK(run_threads(device_group(world, "auto"), ring_of_messages) == "");
    CHECK(run_threads(device_group(world, "auto"), messages_beside_collectives) == "");
  }
}

}  // namespace rondo::testing
