#include <cfenv>

#include "kernels/machine.h"

namespace rondo {

const KernelTable* kernel_table(InstructionSet set) {
  return set == InstructionSet::kBaseline ? &baseline::kKernels : nullptr;
}

void call_in_default_float_mode(Kernel kernel, const KernelCall& call) {
  std::fenv_t mode;
  std::fegetenv(&mode);
  std::fesetenv(FE_DFL_ENV);
  kernel(call);
  std::fesetenv(&mode);
}

}  // namespace rondo
