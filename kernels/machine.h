#pragma once

#include "kernels/combine.h"
#include "kernels/kernel_table.h"
#include "kernels/select_table.h"

namespace rondo {

// What differs between processors; machine_x86.cc or machine_generic.cc, picked by BUILD.

// The loops of a set; nullptr if they are not built or the processor or the operating system lacks the set.
const KernelTable* kernel_table(InstructionSet set);
const SelectRow* select_row(InstructionSet set);

// Within its life this thread has round-to-nearest, no flush-to-zero and no floating-point traps; then its own settings
// again.
class DefaultFloatMode {
 public:
  DefaultFloatMode();
  ~DefaultFloatMode();
  DefaultFloatMode(const DefaultFloatMode&) = delete;

 private:
  alignas(8) unsigned char kept_[64];
};

// Calls the kernel with round-to-nearest, without flush-to-zero and without floating-point traps, whatever the caller's
// thread has set, and puts the thread's own settings back.
void call_in_default_float_mode(Kernel kernel, const KernelCall& call);

}  // namespace rondo
