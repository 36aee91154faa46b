#pragma once

#include <cfenv>
#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace rondo::testing {

// How a program may have set the floats of a thread; 0: as it starts.
inline constexpr int kFloatModes = 4;

// Within its life this thread is in the mode `which`: another rounding each, and from 1 on without denormals, as
// frameworks set it for speed.
class FloatMode {
 public:
  explicit FloatMode(int which) {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
    constexpr int kRounding[kFloatModes] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    std::fesetround(kRounding[which]);
    if (which > 0) set_control(control() | kFlush);
    own_ = control() & ~kSticky;
  }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;
  ~FloatMode() { std::fesetenv(&before_); }

  // Nobody has changed it meanwhile.
  bool stands() const { return (control() & ~kSticky) == own_; }

 private:
#if defined(__x86_64__)
  static constexpr uint64_t kFlush = 0x8040, kSticky = 0x3f;  // MXCSR: FTZ and DAZ
  static uint64_t control() { return _mm_getcsr(); }
  static void set_control(uint64_t control) { _mm_setcsr(static_cast<unsigned>(control)); }
#else
  static constexpr uint64_t kFlush = 1u << 24, kSticky = 0;  // FPCR: FZ
  static uint64_t control() {
    uint64_t control;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
  static void set_control(uint64_t control) { asm volatile("msr fpcr, %0" : : "r"(control) : "memory"); }
#endif

  std::fenv_t before_;
  uint64_t own_ = 0;
};

}  // namespace rondo::testing
