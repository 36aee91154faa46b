// Which processor cores threads may run on. Sets are cpu_set_t: machines of up to 1024 cores.
#pragma once

#include <sched.h>

#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// The cores that the calling thread may run on; none if the kernel does not say.
cpu_set_t allowed_cores();

// A set of cores as bytes: bit b of byte i is core 8 i + b. Zeros at the end are left out, so it has at most
// kCoreSetBytes; cores beyond them are left out, too.
inline constexpr size_t kCoreSetBytes = CPU_SETSIZE / 8;
std::string pack_cores(const cpu_set_t& cores);
cpu_set_t unpack_cores(std::string_view bytes);

// How many cores the ranks of one host have between them, by the set that each may use. It is less than the
// number of ranks if some ranks must share a core (of four ranks three are bound to one core: 1). 0: a rank's
// set is empty, so it is not known.
int cores_between(const std::vector<cpu_set_t>& ranks);

// The core for the place-th rank of a host, among the allowed ones in turn. -1: there are fewer than two of
// them, or no place (negative).
int home_core(const cpu_set_t& allowed, int place);

// Moves the calling thread to its home_core(), and leaves it free to run wherever it was allowed. False: it was
// there, it has no such core, or the kernel does not allow the move.
bool go_home(int place);

}  // namespace rondo
