#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rondo::testing {

// The calling thread takes denormals for zeros within its life, as frameworks set it for speed.
class FlushToZero {
 public:
  FlushToZero() : before_(mode()) { set_mode(before_ | kFlush); }
  ~FlushToZero() { set_mode(before_); }
  FlushToZero(const FlushToZero&) = delete;

  // Nobody has changed it meanwhile.
  bool stands() const { return (mode() & ~kSticky) == ((before_ | kFlush) & ~kSticky); }

 private:
#if defined(__x86_64__)
  static constexpr uint64_t kFlush = 0x8040, kSticky = 0x3f;  // MXCSR: FTZ and DAZ
  static uint64_t mode() { return _mm_getcsr(); }
  static void set_mode(uint64_t mode) { _mm_setcsr(static_cast<unsigned>(mode)); }
#else
  static constexpr uint64_t kFlush = 1u << 24, kSticky = 0;  // FPCR: FZ
  static uint64_t mode() {
    uint64_t mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void set_mode(uint64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }
#endif

  uint64_t before_;
};

}  // namespace rondo::testing
