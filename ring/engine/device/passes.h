#pragma once

#include <cstdint>
#include <vector>

#include "kernels/device/peer_places.h"
#include "ring/engine/call/call.h"
#include "ring/plan/lower.h"
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

// What a pass works on: the buffers of this rank, and the places for messages, of `pitch` bytes each: its own, and
// those of the rank that it sends to, as they are mapped here.
struct PassMemory {
  BlockPlace input, output;
  BlockPlace arrivals, departures;
};

// entry: a pass of `plan` lowered. call: an even one, of the piece. Pure. Throws Exception(kInternal) if a message is
// larger than its place.
BoundPass bind_pass(const CheckedCall& call, const Plan& plan, const StreamEntry& entry, const PassMemory& memory);

// A copy of bytes between own addresses.
BoundPass copy_pass(std::byte* to, const std::byte* from, uint64_t bytes);

// Whether the other ranks' steps touch the input or the output of `rank`. plans: of all ranks.
struct Touched {
  bool input = false, output = false;
};
Touched touched_by_others(const std::vector<Plan>& plans, int rank);

}  // namespace rondo
