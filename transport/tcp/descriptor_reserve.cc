#include "transport/tcp/descriptor_reserve.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

namespace rondo {

size_t count_descriptors() {
  DIR* folder = ::opendir("/proc/thread-self/fd");
  if (folder == nullptr) return 16;  // no /proc: a guess that standard streams and a program's few files stay below
  size_t entries = 0;
  while (::readdir(folder) != nullptr) ++entries;
  ::closedir(folder);
  return entries - 3;  // ".", ".." and the folder itself
}

size_t free_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const size_t open = count_descriptors();
  return limit.rlim_cur > open ? static_cast<size_t>(limit.rlim_cur) - open : 0;
}

// Another thread may take the free number between the two calls: then nothing is accepted, and the caller tries later.
bool DescriptorReserve::turn_away(int listener) {
  spare_.reset();
  const bool accepted =
      Descriptor([&] { return ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); }).valid();
  refill();
  return accepted;
}

void DescriptorReserve::refill() {
  spare_ = Descriptor([&] { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); });
}

}  // namespace rondo
