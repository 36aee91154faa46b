#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/combine.h"
#include "kernels/kernel_table.h"

namespace rondo {

// The elements of u = input + residual whose magnitude, as bits without the sign, is call.least or more: their numbers,
// ascending, and their values. float32; nothing needs alignment; no overlap of inputs and outputs. As bits, magnitudes
// order as the numbers do; NaN is above infinity. Never throws, allocates or blocks; any thread. All instruction sets
// find the same; it must be available. A pass over both inputs: bound by memory while few elements are selected.
Selected select_magnitudes(const SelectCall& call, InstructionSet set = active_instruction_set());

}  // namespace rondo
