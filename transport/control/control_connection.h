#pragma once

#include <functional>
#include <memory>
#include <string>

#include "transport/control/control_message.h"
#include "transport/hello/secured_socket.h"

namespace asio {
class io_context;
}

namespace rondo {

// Control frames over one socket, in both directions. On the I/O thread.
class ControlConnection {
 public:
  using OnFrame = std::function<void(ControlFrame)>;
  // Nothing comes any more; why, in words. Called once, unless the object is destroyed before.
  using OnEnd = std::function<void(const std::string& why)>;

  ControlConnection(asio::io_context& io, SecuredSocket socket, OnFrame on_frame, OnEnd on_end);
  ~ControlConnection();

  // More than kMaxQueuedBytes unsent ends the connection: the peer has stopped reading.
  void send(const ControlFrame& frame);
  // Says that nothing more will be sent, once what is queued has gone. Reading goes on to the peer's end.
  void finish();

 private:
  class State;
  std::shared_ptr<State> state_;  // shared with the handlers that Asio still holds
};

}  // namespace rondo
