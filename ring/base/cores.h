// Which processor cores threads may run on. Sets are cpu_set_t: machines of up to 1024 cores.
#pragma once

#include <sched.h>

#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// Those of the calling thread; none if the kernel does not say.
cpu_set_t allowed_cores();

// A set of cores as bytes, bit b of byte i for core 8 i + b, without zeros at the end: at most kCoreSetBytes. What is
// beyond them is left out.
inline constexpr size_t kCoreSetBytes = CPU_SETSIZE / 8;
std::string pack_cores(const cpu_set_t& cores);
cpu_set_t unpack_cores(std::string_view bytes);

// How many cores the ranks of one host have between them, by the sets that each may use: fewer than ranks, if somewhere
// several must share one (four ranks, three of them bound to one core: 1). 0: not known, since a rank's set is empty.
int cores_between(const std::vector<cpu_set_t>& ranks);

// The allowed core for the place-th rank of the host, counted round; -1 if there is no choice (fewer than two allowed
// cores) or no place (negative).
int home_core(const cpu_set_t& allowed, int place);

// Moves the calling thread to home_core() of the cores that it may use, and leaves it free to go wherever it was
// allowed. False: it was there, there is none, or the kernel does not allow it.
bool go_home(int place);

}  // namespace rondo
