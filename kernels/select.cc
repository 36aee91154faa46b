#include "kernels/select.h"

#include "kernels/machine.h"

namespace rondo {

// The sum with the residual is arithmetic, so it needs the default mode.
Selected select_magnitudes(const SelectCall& call, InstructionSet set) {
  const KernelTable& table = available_kernel_table(set);
  const DefaultFloatMode mode;
  return table.select(call);
}

}  // namespace rondo
