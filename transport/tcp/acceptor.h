#pragma once

// For the .cc files of the transport: asio_socket.h is in it.

#include <chrono>
#include <functional>
#include <utility>

#include "transport/tcp/asio_socket.h"
#include "transport/tcp/io_timer.h"

namespace rondo {

// Accepts the connections of a listening socket. On the I/O thread, but for construction.
class Acceptor {
 public:
  // After a failure of the system's: no descriptor is left, or no memory. Little of a handshake's 5 s.
  static constexpr std::chrono::milliseconds kPause{50};

  // A connection, non-blocking and close-on-exec. Nothing is accepted any more once it has thrown.
  using Take = std::function<void(Descriptor socket)>;
  // The listener does not let this process accept, by the system's number; it is tried again after kPause. It may
  // destroy the Acceptor.
  using Fail = std::function<void(int listener, int number)>;
  Acceptor(
      asio::io_context& io, Descriptor listener, Take take, Fail fail = [](int, int) {})
      : socket_(io, std::move(listener)), pause_(io), take_(std::move(take)), fail_(std::move(fail)) {}

  void start();

 private:
  void accept();

  AsioSocket socket_;
  IoTimer pause_;
  const Take take_;
  const Fail fail_;
};

}  // namespace rondo
