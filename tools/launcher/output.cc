#include "tools/launcher/output.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace rondo::launcher {

// The descriptor may be shared with other programs (a terminal), so it cannot be made non-blocking. A pipe that polls
// as writable takes PIPE_BUF bytes without blocking (pipe(7)). What was written is cut off only when it is much, so
// that most calls move no bytes.
void Output::write() {
  while (wants_to_write() && ready()) {
    const size_t bytes = std::min<size_t>(pending_.size() - written_, PIPE_BUF);
    const ssize_t n = ::write(fd_, pending_.data() + written_, bytes);
    if (n < 0 && errno != EINTR && errno != EAGAIN) fail(errno);
    if (n < 0) break;
    written_ += static_cast<size_t>(n);
  }
  if (broken_ || written_ == pending_.size()) {
    pending_.clear();
    written_ = 0;
  } else if (written_ > kMaxPendingBytes) {
    pending_.erase(0, written_);
    written_ = 0;
  }
}

// A pipe without a reader stays so; a disk may have room again.
void Output::fail(int number) {
  broken_ = number == EPIPE;
  if (!broken_ && !std::exchange(failed_before_, true)) problem_ = number;
  written_ = pending_.size();
}

bool Output::ready() const {
  pollfd entry{fd_, POLLOUT, 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace rondo::launcher
