// Descriptors keep out of the way of what prints.
#include "ring/base/descriptor.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <span>
#include <thread>
#include <vector>

#include "tests/support/child.h"

namespace rondo {
namespace {

TEST_CASE("a process that was started without input and outputs prints into none of its descriptors") {
  CHECK(testing::in_child([] {
          for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(standard);
          const Descriptor one(::open("/dev/null", O_RDONLY | O_CLOEXEC)), two(::open("/dev/null", O_RDONLY));
          const bool above = one.get() > STDERR_FILENO && two.get() > STDERR_FILENO;
          const bool flags = ::fcntl(one.get(), F_GETFD) == FD_CLOEXEC && ::fcntl(two.get(), F_GETFD) == 0;
          const bool closed = ::write(STDERR_FILENO, "x", 1) < 0;
          return above && flags && closed ? 0 : 1;
        }) == 0);
}

// The thread sanitizer does not support threads in the child of a process that had threads.
#ifndef __SANITIZE_THREAD__
// No allocation, no stream: the child of a process with threads.
int sockets_here() {
  int sockets = 0;
  for (int fd = 0; fd < 256; ++fd) {
    int type = 0;
    socklen_t size = sizeof type;
    sockets += ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 ? 1 : 0;
  }
  return sockets;
}

TEST_CASE("a forked child has none of the sockets that another thread was opening") {
  const int before = sockets_here();
  std::atomic<bool> over{false};
  std::thread opens([&] {
    while (!over) {
      const Descriptor one([] { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); });
      int ends[2];
      const std::vector<Descriptor> two = own_all(2, [&]() -> std::span<const int> {
        return ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 ? std::span<const int>(ends)
                                                                               : std::span<const int>();
      });
    }
  });
  for (int i = 0; i < 500; ++i) REQUIRE(testing::in_child([&] { return sockets_here() - before; }) == 0);
  over = true;
  opens.join();
  CHECK(sockets_here() == before);
}
#endif

}  // namespace
}  // namespace rondo
