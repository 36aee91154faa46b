#include <cpuid.h>
#include <immintrin.h>

#include <cstring>

#include "kernels/machine.h"

namespace rondo {

namespace {

// MXCSR: all exceptions masked, round to nearest, no flush-to-zero, denormals are not zeros (Intel's manual, volume 1,
// 10.2.3). The low six bits are sticky flags, no settings.
constexpr uint32_t kDefaultMode = 0x1f80;
constexpr uint32_t kFlags = 0x003f;

// Clang 14's __builtin_cpu_supports does not know it.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// __builtin_cpu_supports also asks the operating system (XGETBV) whether it saves the registers. Asked once: CPUID
// leaves a virtual machine, which takes microseconds.
bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") && has_f16c();
  return has;
}
bool has_avx512() {
  static const bool has = has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return has;
}

}  // namespace

const KernelTable* kernel_table(InstructionSet set) {
  switch (set) {
    case InstructionSet::kBaseline:
      return &baseline::kKernels;
    case InstructionSet::kAvx2:
      return has_avx2() ? &avx2::kKernels : nullptr;
    case InstructionSet::kAvx512:
      return has_avx512() ? &avx512::kKernels : nullptr;
  }
  return nullptr;
}

DefaultFloatMode::DefaultFloatMode() {
  const uint32_t mode = _mm_getcsr();
  std::memcpy(kept_, &mode, sizeof(mode));
  if ((mode & ~kFlags) != kDefaultMode) _mm_setcsr(kDefaultMode | (mode & kFlags));
}

DefaultFloatMode::~DefaultFloatMode() {
  uint32_t mode;
  std::memcpy(&mode, kept_, sizeof(mode));
  if ((mode & ~kFlags) != kDefaultMode) _mm_setcsr(mode);
}

void call_in_default_float_mode(Kernel kernel, const KernelCall& call) {
  const uint32_t mode = _mm_getcsr();
  if ((mode & ~kFlags) == kDefaultMode) return kernel(call);
  _mm_setcsr(kDefaultMode | (mode & kFlags));
  kernel(call);
  _mm_setcsr(mode);
}

}  // namespace rondo
