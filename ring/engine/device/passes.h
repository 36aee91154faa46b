#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/device/device_call.h"
#include "ring/engine/call/call.h"
#include "ring/plan/lower.h"
#include "ring/plan/plan.h"

namespace rondo {

// Which block of a rank's input and output each other rank touches: by rank; -1: none.
struct Touched {
  using Blocks = std::array<int, kMaxDeviceRanks>;
  Blocks input, output;

  // The blocks that others touch, once each: in this order they lie in window 0, where they are staged.
  static std::vector<int> all(const Blocks& blocks);
};
// plans: of all ranks. Throws Exception(kInternal) if a rank touches several blocks of a buffer.
Touched touched_by_others(const std::vector<Plan>& plans, int rank);

// A buffer of this rank.
struct BufferPlace {
  std::byte* data = nullptr;  // the caller's
  // Where others find it: a window of all ranks, and the place in it of `data`, or of the staged slices.
  uint32_t window = 0;
  uint64_t offset = 0;
  std::byte* staged = nullptr;  // a slice of each block that others touch, one after the other; nullptr: of none
};

// Fills in the program of a kernel (made.steps to made.refs, made.input to made.longest). Passes find own memory by
// address, other ranks' by rank, and messages by number. Copies that stage buffers come before the steps of the plan
// and behind them. Requires made.slice, and in made.prints the call's fingerprint. Pure. Throws Exception(kInternal) if
// the plan is too long for a kernel.
void bind_program(const CheckedCall& call, const Plan& plan, const StreamProgram& program, const Touched& touched,
                  const BufferPlace& input, const BufferPlace& output, DeviceCall& made);

}  // namespace rondo
