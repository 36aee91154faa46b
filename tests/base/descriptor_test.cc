// Descriptors keep out of the way of what prints.
#include "ring/base/descriptor.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rondo {
namespace {

TEST_CASE("a process that was started without input and outputs prints into none of its descriptors") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(standard);
    const Descriptor one(::open("/dev/null", O_RDONLY | O_CLOEXEC)), two(::open("/dev/null", O_RDONLY));
    const bool above = one.get() > STDERR_FILENO && two.get() > STDERR_FILENO;
    const bool flags = ::fcntl(one.get(), F_GETFD) == FD_CLOEXEC && ::fcntl(two.get(), F_GETFD) == 0;
    const bool closed = ::write(STDERR_FILENO, "x", 1) < 0;
    ::_exit(above && flags && closed ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
}

}  // namespace
}  // namespace rondo
