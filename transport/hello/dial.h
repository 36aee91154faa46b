#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/error.h"
#include "transport/auth/authenticator.h"
#include "transport/hello/secured_socket.h"
#include "transport/hello/wire.h"
#include "transport/tcp/endpoint.h"
#include "transport/tcp/socket_options.h"

namespace asio {
class io_context;
}

namespace rondo {

// One connection that is to be made.
struct DialOrder {
  std::string peer;  // "rank 3 (host b, pid 17)"
  // At least one, all of them the peer's. Roster has refused a card without any.
  std::vector<Endpoint> endpoints;
  std::optional<Hello> hello;  // none: only find out whether anything listens there
  Authenticator auth;
  SocketTuning tuning;
  // For all attempts together, the welcome included. A peer that has accepted may take until then to answer.
  std::chrono::steady_clock::time_point deadline;
  std::chrono::milliseconds attempt{5'000};  // for one endpoint to accept
};

struct DialResult {
  SecuredSocket socket;  // welcomed; or invalid, and
  // kPeerLost: nothing listens at an endpoint that the peer published; kUnresponsive: no sign of life of its host for
  // tuning.silence_ms; kTimeout; kAuthFailed; kNetwork: refused, with the peer's words; kSystem: this process may not
  // connect.
  Error error;
};

// Makes one connection: tries a peer's endpoints in turn, says hello, waits for the welcome, and tries again until the
// deadline. On the I/O thread.
class Dial {
 public:
  // `done` is called once, unless the Dial is destroyed before. It may destroy the Dial.
  Dial(asio::io_context& io, DialOrder order, std::function<void(DialResult)> done);
  // Ends the attempt under way, without a call of `done`.
  ~Dial();
  // "connecting to rank 3 (host b, pid 17) at 10.0.0.3:4000 from 10.0.0.1: no answer to the connection attempt": how
  // the attempt under way stands, else how the last one ended.
  std::string words() const;
  // The attempt under way has been accepted.
  bool accepted() const;
  Dial(const Dial&) = delete;
  Dial& operator=(const Dial&) = delete;

 private:
  class State;
  std::shared_ptr<State> state_;  // shared with the handlers that Asio still holds
};

}  // namespace rondo
