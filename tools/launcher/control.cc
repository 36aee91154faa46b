#include "tools/launcher/control.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>

namespace rondo::launcher {

Orders read_orders(int fd, std::string& begun) {
  char bytes[64];
  const ssize_t n = ::read(fd, bytes, sizeof(bytes));
  Orders orders;
  orders.closed = n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
  if (n > 0) begun.append(bytes, static_cast<size_t>(n));
  size_t used = 0;
  for (; used < begun.size(); ++used) {
    const char byte = begun[used];
    if (byte == kEndedByte) {
      if (begun.size() - used < 3) break;
      const auto low = static_cast<unsigned char>(begun[++used]), high = static_cast<unsigned char>(begun[++used]);
      orders.ended.push_back(low | high << 8);
    } else if (byte == kEndByte) {
      orders.end = true;
    } else if (byte > 0 && byte < NSIG) {
      orders.signals.push_back(byte);
    }
  }
  begun.erase(0, used);
  return orders;
}

}  // namespace rondo::launcher
