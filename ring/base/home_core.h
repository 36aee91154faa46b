// The core that a rank's thread belongs on, where each rank of a host can have one of its own.
#pragma once

#include <sched.h>

namespace rondo {

// The allowed core for the place-th rank of the host, counted round; -1 if there is no choice (fewer than two allowed
// cores) or no place (negative).
int home_core(const cpu_set_t& allowed, int place);

// Moves the calling thread to home_core() of the cores that it may use, and leaves it free to go wherever it was
// allowed. Does nothing where there is none, or where the kernel does not allow it.
void go_home(int place);

}  // namespace rondo
