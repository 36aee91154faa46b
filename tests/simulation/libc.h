#pragma once

// What stands in for functions of the C library: those by which a thread waits, looks at the clock, draws a number, or
// reaches the world. A call of a simulated thread goes to the Machine and the Kernel, any other on to libc.

#include <dlfcn.h>

#include "tests/simulation/kernel.h"

namespace rondo::testing::sim {

inline bool simulated() { return Machine::current() != nullptr; }
inline bool simulated(int descriptor) { return descriptor >= Kernel::kFirst && simulated(); }
inline Machine& machine() { return *Machine::current(); }
inline Kernel& kernel() { return Kernel::of_process(); }
inline Time nanoseconds(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

template <typename Function>
Function* next_of(Function*, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}
template <typename Function>
Function* version_of(Function*, const char* name, const char* version) {
  return reinterpret_cast<Function*>(::dlvsym(RTLD_NEXT, name, version));
}

}  // namespace rondo::testing::sim

// A function of the C library by its symbol. It has another name here: headers declare some as inline functions.
#define RONDO_REPLACES(result, name, ...)                                            \
  __attribute__((visibility("default"))) result name##_here(__VA_ARGS__) asm(#name); \
  result name##_here(__VA_ARGS__)
#define RONDO_REAL(name) static auto* const real = next_of(&name##_here, #name)
