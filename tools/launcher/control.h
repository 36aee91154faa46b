#pragma once

#include <string>
#include <vector>

namespace rondo::launcher {

// The control pipe from rondo-run to the process that starts a host's ranks, after the Assignment: one byte is the
// number of a signal to pass on to the ranks, or kEndByte. Its end says that rondo-run has ended.
inline constexpr char kEndByte = '\0';  // end the ranks: another host's have failed

struct Orders {
  std::vector<int> signals;
  bool end = false;
  bool closed = false;
};

// What has arrived; `fd` must poll as readable.
Orders read_orders(int fd);

}  // namespace rondo::launcher
