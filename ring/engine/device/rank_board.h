#pragma once

#include <cstdint>

#include "kernels/device/device_call.h"

namespace rondo {

// Calls are numbered from 1 on, modulo 2^32, and without 0: that is what kernels of graphs have (DeviceCall::number).
constexpr uint32_t number_behind(uint32_t number) { return number + 1 != 0 ? number + 1 : 1; }

// What a rank of a device island shows the others' hosts, in host memory that all its ranks map and the owner locks.
struct RankBoard {
  // Windows of one communicator in all its life: their numbers are the same on all ranks, and are not used again.
  static constexpr uint32_t kMaxWindows = 4096;

  CallStatus status;  // by the owner's kernels; stop: by its host
  uint32_t called;    // number of the last call that its host is about to launch
  uint64_t trial[kMaxDeviceRanks];
  DeviceWindow row[kMaxDeviceRanks];  // on its way into the owner's table
  // By window of the owner: bit r once rank r has let go of it. Of MemorySharing::kIpc only.
  uint64_t closed[kMaxWindows];
  uint64_t kept;  // bit r once graphs of rank r keep those that it has not let go of
};

}  // namespace rondo
