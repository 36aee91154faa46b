#include "kernels/select.h"

#include "kernels/machine.h"

namespace rondo {

Selected select_magnitudes(const SelectCall& call, InstructionSet set) {
  const KernelTable& table = available_kernel_table(set);
  const DefaultFloatMode mode;
  return call.residual != nullptr ? table.select_sum(call) : table.select_plain(call);
}

}  // namespace rondo
