#pragma once

#include <cstdint>

#include "kernels/device/device_call.h"

namespace rondo {

// Calls are numbered from 1, modulo 2^32, without 0: kernels of graphs have the number 0 (DeviceCall::number).
constexpr uint32_t number_behind(uint32_t number) { return number + 1 != 0 ? number + 1 : 1; }

// What a rank of a device island shows the hosts of the others. It lies in host memory that all its ranks map,
// and that the owner locks for its device. Only its owner writes it.
struct RankBoard {
  CallStatus status;  // by the owner's kernels; stop: by its host
  uint32_t called;    // number of the last call that its host is about to launch
  uint64_t trial[kMaxDeviceRanks];
  DeviceWindow row[kMaxDeviceRanks];  // on its way into the owner's table
};

}  // namespace rondo
