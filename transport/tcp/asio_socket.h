#pragma once

// For the .cc files of the transport: the only header with Asio in it.

#include <sys/socket.h>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "ring/base/descriptor.h"

namespace rondo {

// A socket whose readiness the I/O thread waits for. Asio watches it and does not own it, since a forked child must
// close its copy (Descriptor does), and Asio 1.22 makes and accepts sockets without close-on-exec. On the I/O thread,
// but for get().
class AsioSocket {
 public:
  AsioSocket(asio::io_context& io, Descriptor socket) : socket_(std::move(socket)), watch_(io, socket_.get()) {}
  ~AsioSocket() { detach(); }

  int get() const { return socket_.get(); }
  bool valid() const { return socket_.valid(); }
  // `handler()` runs on the I/O thread, once; never after detach() or destruction, so it may refer to the owner of
  // this. It may destroy this.
  template <typename Handler>
  void when_readable(Handler handler) {
    when(asio::posix::stream_descriptor::wait_read, std::move(handler));
  }
  template <typename Handler>
  void when_writable(Handler handler) {
    when(asio::posix::stream_descriptor::wait_write, std::move(handler));
  }
  // Ends the watching and hands the socket over.
  Descriptor detach() {
    watched_.reset();
    if (watch_.is_open()) watch_.release();
    return std::move(socket_);
  }

 private:
  // Asio calls a handler that is due already without an error, whatever has become of the socket since.
  template <typename Handler>
  void when(asio::posix::stream_descriptor::wait_type event, Handler handler) {
    watch_.async_wait(event,
                      [watched = std::weak_ptr(watched_), handler = std::move(handler)](asio::error_code failure) {
                        if (!failure && !watched.expired()) handler();
                      });
  }

  // The order matters: watch_ is released (detach()) before socket_ closes the descriptor.
  Descriptor socket_;
  std::shared_ptr<const bool> watched_ = std::make_shared<const bool>(true);  // until detach(); handlers look whether
  asio::posix::stream_descriptor watch_;
};

// Reads at most `size` bytes once. >0: that many; 0: none now; -1: the end, with `why` in words, and the system's
// number of it, if it is asked for; 0: the peer has closed the connection.
inline long receive_some(int socket, char* target, size_t size, std::string& why, int* number = nullptr) {
  while (true) {
    const ssize_t moved = ::recv(socket, target, size, MSG_DONTWAIT);
    if (moved > 0) return moved;
    const int failed = moved == 0 ? 0 : errno;
    if (failed == EAGAIN || failed == EWOULDBLOCK) return 0;
    if (failed == EINTR) continue;
    if (number != nullptr) *number = failed;
    why = failed == 0 ? "the connection was closed" : std::strerror(failed);
    return -1;
  }
}

// The same for writing.
inline long send_some(int socket, std::string_view bytes, std::string& why) {
  while (true) {
    const ssize_t moved = ::send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (moved >= 0) return moved;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno == EINTR) continue;
    why = std::strerror(errno);
    return -1;
  }
}

}  // namespace rondo
