#pragma once

#include "ring/engine/call/call.h"
#include "ring/engine/island/peer_memory.h"
#include "ring/plan/layout.h"
#include "ring/plan/plan.h"
#include "rondo/config.h"
#include "transport/fabric.h"

namespace rondo {

// The shape of every link of a communicator.
LinkShape link_shape(const Config& config);

// How a call's blocks are cut for links. A function of what all ranks know, so both ends of every link agree on
// the length of each slice.
Slicing choose_slicing(const CheckedCall& call, const Plan& plan, const Config& config, const Topology& topology);

// Where the call's blocks lie: as the caller says, else cut evenly into plan.blocks.
Blocks lay_out_blocks(const CheckedCall& call, const Plan& plan, const Slicing& slicing);

// How they are cut for plans over windows: at most round_bytes of a rank's buffer in a round, where a slice
// fits into that.
Slicing choose_window_slicing(const CheckedCall& call, const Plan& plan, uint64_t round_bytes);

// Bytes of a call's buffers, on a rank that has them. Not for uneven calls.
struct BufferBytes {
  uint64_t input = 0, output = 0;
};
BufferBytes buffer_bytes(const CheckedCall& call, int world);

// Fills in where blocks lie in the buffers of the ranks that have them. Not for uneven calls.
void lay_out_windows(const CheckedCall& call, const Plan& plan, const Slicing& slicing, WindowBinding& windows);

}  // namespace rondo
