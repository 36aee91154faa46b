#pragma once

#include <cstdint>
#include <string_view>

#include "rondo/error.h"

namespace rondo {

// Why the system refused something.
enum class Cause : uint8_t {
  kPeerGone,   // the process or the host at the other end
  kNetwork,    // an address, a route, a port
  kExhausted,  // descriptors or memory, which may be there again later
  kRefused,    // this process may not do it, or this system cannot: it will be refused again
};
Cause cause_of(int number);

// An error of a system call: kPeerLost, kNetwork, or kSystem for the other two causes. Its text is "what: Too
// many open files", and what to do where that is known. number: an errno.
Error system_error(std::string_view what, int number);

}  // namespace rondo
