#pragma once

#include <sys/types.h>

#include "ring/base/descriptor.h"

namespace rondo {

// A process rather than its number, which another process may be given once it has ended. Invalid: there is no such
// process, or the kernel has no such handles (before Linux 5.3).
Descriptor open_process(pid_t pid);
// It has not ended. False for an invalid handle.
bool is_running(const Descriptor& process);

}  // namespace rondo
