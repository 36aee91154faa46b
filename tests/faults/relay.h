#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/faults/hosts.h"
#include "tests/support/child.h"

namespace rondo::testing {

// A process on the host `through` that copies (copier.h) the TCP connections between two other hosts whose traffic is
// diverted there (Hosts::divert): at first all bytes, as they are.
class Relay {
 public:
  // ports: where the ranks listen. hosts must outlive it.
  Relay(const Hosts& hosts, int through, std::vector<uint16_t> ports);
  // Flips a bit of the next 16 KiB and more that it reads at once, which only data connections carry: in the middle, or
  // in the second byte of the first `mark` behind it. Waits until it is done.
  void flip_a_bit(const std::string& mark = "");
  // From now on, in each direction of each connection.
  void limit_rate(size_t bytes_per_second);

 private:
  Child process_;
};

}  // namespace rondo::testing
