#pragma once

namespace rondo::testing {

// From here on the kernel refuses the system call (EPERM) to the calling thread and to those that it starts, where its
// first argument is `first`, unless that is -1. Ends the process with 77 if the kernel has no filters.
void refuse(int call, int first = -1);

}  // namespace rondo::testing
