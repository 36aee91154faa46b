#include "kernels/select.h"

#include "kernels/machine.h"

namespace rondo {

Selected select_magnitudes(const SelectCall& call, InstructionSet set) {
  const KernelTable& table = available_kernel_table(set);
  const DefaultFloatMode mode;
  return table.select(call);
}

}  // namespace rondo
