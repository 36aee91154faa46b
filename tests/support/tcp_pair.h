#pragma once

#include <utility>

#include "ring/base/descriptor.h"

namespace rondo::testing {

// A connected pair over loopback TCP, non-blocking, without delay. receive_bytes: the receive buffer of the second, as
// SO_RCVBUF takes it; 0: the kernel's choice.
std::pair<Descriptor, Descriptor> tcp_pair(int receive_bytes = 0);

}  // namespace rondo::testing
