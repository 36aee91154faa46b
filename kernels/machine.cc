#include "kernels/machine.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace rondo {

namespace {

#if defined(__x86_64__)

// MXCSR: all exceptions masked, round to nearest, no flush-to-zero, denormals are not zeros (Intel's manual, volume 1,
// 10.2.3). The low six bits are sticky flags, no settings.
using FloatMode = uint32_t;
constexpr FloatMode kDefaultMode = 0x1f80;
constexpr FloatMode kFlags = 0x003f;
FloatMode float_mode() { return _mm_getcsr(); }
void set_float_mode(FloatMode mode) { _mm_setcsr(mode); }

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

#elif defined(__aarch64__)

// FPCR: no traps, round to nearest, no flush-to-zero, NaNs keep their payload (Arm's manual, C5.2.8). The flags are in
// a register of their own.
using FloatMode = uint64_t;
constexpr FloatMode kDefaultMode = 0;
constexpr FloatMode kFlags = 0;
FloatMode float_mode() {
  FloatMode mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
void set_float_mode(FloatMode mode) { asm volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }

#else
#error "Rondo's kernels are for x86-64 and aarch64"
#endif

}  // namespace

const KernelTable* kernel_table(InstructionSet set) {
  switch (set) {
    case InstructionSet::kBaseline:
      return &baseline::kKernels;
#if defined(__x86_64__)
    case InstructionSet::kAvx2:
      return has_avx2() ? &avx2::kKernels : nullptr;
    case InstructionSet::kAvx512:
      return has_avx512() ? &avx512::kKernels : nullptr;
#else
    case InstructionSet::kAvx2:
    case InstructionSet::kAvx512:
      return nullptr;
#endif
  }
  return nullptr;
}

// The sticky flags stay the thread's: a program may look at them after the call.
DefaultFloatMode::DefaultFloatMode() {
  const FloatMode mode = float_mode();
  std::memcpy(kept_, &mode, sizeof(mode));
  if ((mode & ~kFlags) != kDefaultMode) set_float_mode(kDefaultMode | (mode & kFlags));
}

DefaultFloatMode::~DefaultFloatMode() {
  FloatMode mode;
  std::memcpy(&mode, kept_, sizeof(mode));
  if ((mode & ~kFlags) != kDefaultMode) set_float_mode(mode);
}

// Setting the mode costs more than reading it: a thread that has the default only reads.
void call_in_default_float_mode(Kernel kernel, const KernelCall& call) {
  const FloatMode mode = float_mode();
  if ((mode & ~kFlags) == kDefaultMode) return kernel(call);
  set_float_mode(kDefaultMode | (mode & kFlags));
  kernel(call);
  set_float_mode(mode);
}

}  // namespace rondo
