#pragma once

#include <cstdint>
#include <vector>

#include "kernels/device.h"
#include "ring/engine/call/call.h"
#include "ring/plan/plan.h"

namespace rondo {

// A buffer of this rank, of `pitch` bytes from one block to the next.
struct BlockPlace {
  std::byte* data = nullptr;
  uint64_t pitch = 0;
};

// A step of a plan over registered memory as a pass of a device: own memory by address, that of other ranks by rank and
// block. count 0: there is nothing to do.
struct BoundPass {
  DeviceFold fold = {};
  PlaceRef sources[kMaxDeviceSources] = {};
  PlaceRef targets[kMaxDeviceTargets] = {};
};

// step: of `plan`, on data. call: an even one, of the piece. Pure.
BoundPass bind_pass(const CheckedCall& call, const Plan& plan, const Step& step, const BlockPlace& input,
                    const BlockPlace& output);

// A copy of bytes between own addresses.
BoundPass copy_pass(std::byte* to, const std::byte* from, uint64_t bytes);

// Whether the other ranks' steps touch the input or the output of `rank`. plans: of all ranks.
struct Touched {
  bool input = false, output = false;
};
Touched touched_by_others(const std::vector<Plan>& plans, int rank);

}  // namespace rondo
