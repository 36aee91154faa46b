#pragma once

#include <string>
#include <vector>

namespace rondo::launcher {

// The control pipe from rondo-run to the process that starts a host's ranks, after the Assignment: one byte is the
// number of a signal to pass on to the ranks, kEndByte or kEndedByte. Its end says that rondo-run has ended.
inline constexpr char kEndByte = '\0';      // end the ranks: another host's have failed
inline constexpr char kEndedByte = '\x7f';  // before two more, the lower first: this rank's process has ended

struct Orders {
  std::vector<int> signals;
  std::vector<int> ended;
  bool end = false;
  bool closed = false;
};

// What has arrived; `fd` must poll as readable. begun: an order that is cut off, from call to call.
Orders read_orders(int fd, std::string& begun);

}  // namespace rondo::launcher
