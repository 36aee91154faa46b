#include "transport/tcp/acceptor.h"

#include <sys/socket.h>

#include <cerrno>

namespace rondo {
namespace {

// Connections of one pass, so that those that were accepted are heard in between.
constexpr int kAtOnce = 16;

}  // namespace

void Acceptor::start() {
  socket_.when_readable([this] { accept(); });
}

void Acceptor::accept() {
  for (int i = 0; i < kAtOnce; ++i) {
    Descriptor socket([&] { return ::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
    const int number = errno;
    if (socket.valid()) {
      take_(std::move(socket));
    } else if (number == EAGAIN || number == EWOULDBLOCK) {
      break;
    } else if (number != EINTR && number != ECONNABORTED) {
      pause_.set(IoTimer::Clock::now() + kPause, [this] { accept(); });
      return fail_(socket_.get(), number);
    }
  }
  start();
}

}  // namespace rondo
