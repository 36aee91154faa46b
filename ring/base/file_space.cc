#include "ring/base/file_space.h"

#include <fcntl.h>

#include <cerrno>

#include "ring/base/signals_blocked.h"

namespace rondo {

int take_file_space(int file, uint64_t bytes) {
  const SignalsBlocked blocked;
  int failed = EINTR;
  while (failed == EINTR) failed = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));  // the kernel's own work
  return failed;
}

}  // namespace rondo
