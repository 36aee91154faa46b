#pragma once

#include <cstddef>

#include "ring/base/descriptor.h"

namespace rondo {

// Descriptors that are open in this process now.
size_t count_descriptors();
// How many more the soft limit allows.
size_t free_descriptors();

// One descriptor that a listener keeps for the time when the process has no more. Without it a connection that waits
// could be neither accepted nor refused, would keep those behind it waiting, and would end every epoll_wait at once.
// With its place such a connection is accepted and closed.
class DescriptorReserve {
 public:
  DescriptorReserve() { refill(); }
  // False: there was no connection, or no descriptor for it even so.
  bool turn_away(int listener);

 private:
  // Without a descriptor to be had the reserve stays empty until the next time.
  void refill();
  Descriptor spare_;
};

}  // namespace rondo
