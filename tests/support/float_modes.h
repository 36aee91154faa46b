#pragma once

#include <cfenv>
#include <cstdint>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace rondo::testing {

// How a program may have set the floats of a thread; 0: as it starts.
inline constexpr int kFloatModes = 4;

// Within its life this thread is in the mode `which`: another rounding each, and from 1 on without denormals.
class FloatMode {
 public:
  explicit FloatMode(int which) {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
    constexpr int kRounding[kFloatModes] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    std::fesetround(kRounding[which]);
#ifdef __SSE2__
    constexpr uint32_t kFlushesAndTakesNone = 0x8040;
    if (which > 0) _mm_setcsr(_mm_getcsr() | kFlushesAndTakesNone);
#endif
  }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;
  ~FloatMode() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_;
};

}  // namespace rondo::testing
