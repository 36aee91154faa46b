#include "tools/launcher/control.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>

namespace rondo::launcher {

Orders read_orders(int fd) {
  char bytes[64];
  const ssize_t n = ::read(fd, bytes, sizeof(bytes));
  Orders orders;
  orders.closed = n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
  for (ssize_t i = 0; i < n; ++i) {
    if (bytes[i] == kEndByte) {
      orders.end = true;
    } else if (bytes[i] > 0 && bytes[i] < NSIG) {
      orders.signals.push_back(bytes[i]);
    }
  }
  return orders;
}

}  // namespace rondo::launcher
