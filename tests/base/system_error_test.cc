// What errno says, as an error's code and a remedy.
#include "ring/base/system_error.h"

#include <doctest/doctest.h>

#include <cerrno>

namespace rondo {
namespace {

TEST_CASE("a cause has one code: the peer's end, the network's, this system's") {
  for (const int number : {ECONNRESET, EPIPE, ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, ECONNABORTED}) {
    CAPTURE(number);
    CHECK(system_error("reading", number).code == ErrorCode::kPeerLost);
  }
  for (const int number : {ECONNREFUSED, EADDRINUSE, EADDRNOTAVAIL, ENETDOWN}) {
    CAPTURE(number);
    CHECK(system_error("binding", number).code == ErrorCode::kNetwork);
  }
  for (const int number :
       {EMFILE, ENFILE, ENOMEM, ENOBUFS, EPERM, EACCES, ENOSYS, EBADF, EINVAL, EAFNOSUPPORT, 4'000}) {
    CAPTURE(number);
    CHECK(system_error("epoll_ctl", number).code == ErrorCode::kSystem);
  }
  CHECK(cause_of(EMFILE) == Cause::kExhausted);
  CHECK(cause_of(EPERM) == Cause::kRefused);
  CHECK(system_error("eventfd", EMFILE).message ==
        "eventfd: Too many open files (raise the limit on open files: ulimit -n)");
}

}  // namespace
}  // namespace rondo
