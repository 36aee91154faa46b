#pragma once

#include <functional>
#include <memory>
#include <string>

#include "transport/tcp/listener.h"

namespace asio {
class io_context;
}

namespace rondo {

// Serves a text at a unix socket, on the I/O thread. A client that connects gets the text, and then the end of the
// stream. What a client writes is not read. Processes of other users are refused, but for root's.
class StatusServer {
 public:
  static constexpr size_t kMostClients = 16;  // more push out the oldest

  // text: called on the I/O thread. Where it throws, the client gets nothing. patience_ms: for a client to read it.
  StatusServer(asio::io_context& io, Listener listener, std::function<std::string()> text, int64_t patience_ms = 5'000);
  // Removes the socket. The I/O thread must have been stopped.
  ~StatusServer();

 private:
  class State;
  const std::string path_;
  std::shared_ptr<State> state_;  // shared with the handlers that Asio still holds
};

}  // namespace rondo
