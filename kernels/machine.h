#pragma once

#include "kernels/combine.h"
#include "kernels/kernel_table.h"
#include "ring/base/check.h"

namespace rondo {

// What is asked of the processor and of its floating-point unit.

// The loops of a set; nullptr if the processor or the operating system lacks the set.
const KernelTable* kernel_table(InstructionSet set);
// Those of a set that must be there.
inline const KernelTable& available_kernel_table(InstructionSet set) {
  const KernelTable* table = kernel_table(set);
  RONDO_CHECK(table != nullptr, "an instruction set that this machine lacks");
  return *table;
}

// Within its life this thread has round-to-nearest, no flush-to-zero and no floating-point traps; then its own settings
// again. Programs change the mode for themselves (-ffast-math sets flush-to-zero at start), and ranks that fold in
// different modes would have different bits. On the thread that made it.
class DefaultFloatMode {
 public:
  DefaultFloatMode();
  ~DefaultFloatMode();
  DefaultFloatMode(const DefaultFloatMode&) = delete;

 private:
  // The thread's mode. Its type is machine.cc's own, since it differs by processor.
  alignas(8) unsigned char kept_[64];
};

// Calls the kernel with round-to-nearest, without flush-to-zero and without floating-point traps, whatever the caller's
// thread has set, and puts the thread's own settings back.
void call_in_default_float_mode(Kernel kernel, const KernelCall& call);

}  // namespace rondo
