#pragma once

#include <sys/types.h>

#include "ring/base/descriptor.h"

namespace rondo {

// A handle of a process. A process id may be given to another process when its own has ended; a handle is not.
// Invalid: there is no such process, or the kernel has no handles (before Linux 5.3).
Descriptor open_process(pid_t pid);
// Whether the process has not ended. False for an invalid handle.
bool is_running(const Descriptor& process);

}  // namespace rondo
