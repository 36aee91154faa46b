#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ring/engine/island/island_channel.h"
#include "ring/plan/layout.h"
#include "transport/shared_memory.h"

namespace rondo {

// One rank's memory as this process reaches it. nullptr: it is not mapped here, so it is pulled from its
// address in that rank's process; or the plan does not touch it.
struct PeerMemory {
  std::byte* input = nullptr;  // only ever read
  std::byte* output = nullptr;
  std::byte* staging = nullptr;
  uint64_t input_address = 0, output_address = 0;
  int world_rank = -1;
};

// What the windows of a plan are bound to in one call. BoundWindows owns it, and keeps the memory mapped.
struct WindowBinding {
  std::vector<PeerMemory> ranks;  // by rank of the group, this one among them
  // Blocks in the buffers of those ranks that hold them (in elements); the same on every rank.
  std::vector<Extent> input_blocks, output_blocks;
  uint64_t largest_block = 0;  // elements
  SharedMemory* memory = nullptr;
  IslandChannel* channel = nullptr;  // where the ranks meet between their steps
};

}  // namespace rondo
