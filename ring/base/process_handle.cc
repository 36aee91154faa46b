#include "ring/base/process_handle.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace rondo {

// The library's own function came with glibc 2.36. The handle is closed on exec by the kernel's choice.
Descriptor open_process(pid_t pid) {
  return Descriptor([&] { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); });
}

bool is_running(const Descriptor& process) {
  if (!process.valid()) return false;
  pollfd entry{process.get(), POLLIN, 0};  // readable once it has ended
  int ready = 0;
  do {
    ready = ::poll(&entry, 1, 0);
  } while (ready < 0 && errno == EINTR);
  return ready == 0;
}

}  // namespace rondo
