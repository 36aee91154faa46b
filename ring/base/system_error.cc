#include "ring/base/system_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace rondo {
namespace {

ErrorCode code_of(Cause cause) {
  if (cause == Cause::kPeerGone) return ErrorCode::kPeerLost;
  return cause == Cause::kNetwork ? ErrorCode::kNetwork : ErrorCode::kSystem;
}

// What the user can do; "" where the number alone does not say.
const char* remedy_of(int number) {
  switch (number) {
    case EMFILE:
      return " (raise the limit on open files: ulimit -n)";
    case ENFILE:
      return " (the system has no more open files: fs.file-max)";
    case EPERM:
    case ENOSYS:
      return " (a security filter may forbid it: seccomp, a sandbox, a container's profile)";
    case EBADF:
      return " (another part of this process has closed the descriptor)";
    default:
      return "";
  }
}

}  // namespace

// EAGAIN counts as exhausted: the system reports its limits on threads and locked memory by it.
Cause cause_of(int number) {
  switch (number) {
    case ECONNRESET:
    case EPIPE:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ECONNABORTED:
      return Cause::kPeerGone;
    case ECONNREFUSED:
    case EADDRINUSE:
    case EADDRNOTAVAIL:
    case ENETDOWN:
    case ENETRESET:
    case ENONET:
    case EPROTO:
    case ENOPROTOOPT:
    case EOPNOTSUPP:
    case ENOTCONN:
      return Cause::kNetwork;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
    case ENOSPC:
    case EAGAIN:
      return Cause::kExhausted;
    default:
      return Cause::kRefused;
  }
}

Error system_error(std::string_view what, int number) {
  return {code_of(cause_of(number)), fmt::format("{}: {}{}", what, std::strerror(number), remedy_of(number)), {}};
}

}  // namespace rondo
