#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ring/base/log.h"
#include "transport/auth/authenticator.h"
#include "transport/hello/secured_socket.h"
#include "transport/hello/wire.h"
#include "transport/tcp/endpoint.h"
#include "transport/tcp/listener.h"

namespace asio {
class io_context;
}

namespace rondo {

// Accepts connections, has each prove who it is before a deadline, and hands the welcome ones over. Strangers (another
// protocol, silence, a port scan, another secret) are dropped; more than `max_pending` of them at once push out the
// oldest of the address that has the most. On the I/O thread, but for construction and endpoints().
class Reception {
 public:
  // The bounds protect this process from strangers; door_bounds() derives them, so that the ranks of the job never meet
  // them.
  struct Settings {
    std::vector<Listener> listeners;  // at least one
    int64_t handshake_timeout_ms = 5'000;
    // For the confirmation of one that was welcomed. It sends data at once, so an outage of the network that the ranks
    // survive must not end the connection; 0: no limit but max_known.
    int64_t confirm_timeout_ms = 5'000;
    size_t max_pending = 128;
    size_t max_known = 1024;  // whose hello was that of a process that knows the secret
    Logger logger;
    Authenticator auth;
    std::function<void(const std::string& from)> on_wrong_secret;  // told of each that is refused; may be empty
    bool seals = false;                                            // see AcceptorHandshake
  };
  // What to answer to a process that knows the secret; nullopt: not known yet, ask again after reconsider().
  using Judge = std::function<std::optional<Answer>(const Hello&)>;
  // The dialer has confirmed the welcome.
  using Welcome = std::function<void(const Hello&, SecuredSocket)>;

  Reception(asio::io_context& io, Settings settings, Judge judge, Welcome welcome);
  ~Reception();  // the I/O thread must have been stopped

  // Where it listens, as bound: the real ports. Any thread.
  const std::vector<Endpoint>& endpoints() const;
  // Accepts from here on.
  void start();
  // Asks the judge again about those for whom it had no answer.
  void reconsider();
  // Ends the listening, and what has not been welcomed.
  void stop();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
