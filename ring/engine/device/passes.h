#pragma once

#include <cstdint>
#include <vector>

#include "kernels/device/device_call.h"
#include "ring/engine/call/call.h"
#include "ring/plan/lower.h"
#include "ring/plan/plan.h"

namespace rondo {

// A buffer of this rank; `pitch` bytes lie from one block to the next.
struct BlockPlace {
  std::byte* data = nullptr;
  uint64_t pitch = 0;
};

// Fills in the program of a kernel (made.steps to made.refs): own memory by address, that of other ranks by
// rank and block, messages by number. call: an even one, of a piece. input, output: this rank's. Pure. Throws
// Exception(kInternal) if the plan is too long for a kernel.
//
// Returns how many passes and refs there are then. behind: the passes and refs of another call that stay, of
// the same steps.
struct Bound {
  uint32_t passes = 0, refs = 0;
};
Bound bind_program(const CheckedCall& call, const Plan& plan, const StreamProgram& program, const BlockPlace& input,
                   const BlockPlace& output, DeviceCall& made, Bound behind = {});

// Whether the steps of other ranks touch the input or the output of `rank`. plans: of all ranks.
struct Touched {
  bool input = false, output = false;
};
Touched touched_by_others(const std::vector<Plan>& plans, int rank);

}  // namespace rondo
