#include <cfenv>
#include <cstring>

#include "kernels/machine.h"

namespace rondo {

const KernelTable* kernel_table(InstructionSet set) {
  return set == InstructionSet::kBaseline ? &baseline::kKernels : nullptr;
}

const SelectRow* select_row(InstructionSet set) {
  return set == InstructionSet::kBaseline ? &baseline::kSelect : nullptr;
}

DefaultFloatMode::DefaultFloatMode() {
  static_assert(sizeof(std::fenv_t) <= sizeof(kept_));
  std::fenv_t mode;
  std::fegetenv(&mode);
  std::memcpy(kept_, &mode, sizeof(mode));
  std::fesetenv(FE_DFL_ENV);
}

DefaultFloatMode::~DefaultFloatMode() {
  std::fenv_t mode;
  std::memcpy(&mode, kept_, sizeof(mode));
  std::fesetenv(&mode);
}

void call_in_default_float_mode(Kernel kernel, const KernelCall& call) {
  std::fenv_t mode;
  std::fegetenv(&mode);
  std::fesetenv(FE_DFL_ENV);
  kernel(call);
  std::fesetenv(&mode);
}

}  // namespace rondo
