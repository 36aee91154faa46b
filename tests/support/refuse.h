#pragma once

#include <cerrno>

namespace rondo::testing {

// A system call that the kernel refuses, and how.
struct Refusal {
  int call = -1;
  int value = -1;  // only where the argument has it; -1: always
  int argument = 0;
  int error = EPERM;
};
// From here on, to the calling thread and to those that it starts. Ends the process with 77 if the kernel has no
// filters.
void refuse(const Refusal& refusal);
inline void refuse(int call, int first = -1) { refuse(Refusal{call, first}); }

}  // namespace rondo::testing
