#pragma once

#include <vector>

#include "tests/engine/cases.h"
#include "tests/support/host_device/mirror.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {

// Ranks with a host device each, or, as threads, one of all.
inline RankGroup device_group(int world, const char* transport) {
  RankGroup group;
  group.world = world;
  group.config.transport = world == 1 ? "auto" : transport;
  group.config.device_library = device_library();
  return group;
}

// Runs the cases on device memory on this rank, one after the other; throws what is wrong. Nothing but the stream waits
// for a call.
void run_on_device(Communicator& group, const std::vector<CollectiveCase>& cases);

}  // namespace rondo::testing
