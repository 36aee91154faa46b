#pragma once

#include <cerrno>
#include <system_error>

namespace rondo::launcher {

// The result of a system call; throws std::system_error naming the call if it is negative.
inline int check_call(const char* call, int result) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), call);
  return result;
}

}  // namespace rondo::launcher
