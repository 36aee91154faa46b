#pragma once

#include <memory>
#include <string>
#include <utility>

#include "ring/base/descriptor.h"
#include "transport/auth/tls_session.h"

namespace rondo {

// A connection whose handshake is over: its socket, and the session of what follows, if that is sealed.
struct SecuredSocket {
  SecuredSocket() = default;
  // Not explicit: without encryption a socket is all that there is.
  SecuredSocket(Descriptor connected, std::unique_ptr<TlsSession> its_session = nullptr)
      : socket(std::move(connected)), session(std::move(its_session)) {}

  bool valid() const { return socket.valid(); }

  Descriptor socket;
  std::unique_ptr<TlsSession> session;
};

// Does what can be done of the session's handshake over a connected, non-blocking socket. 1: it is over; 0: more has to
// come; -1: it has failed, with `why` in words and, where reading failed and it is asked for, the system's number.
long shake_hands(TlsSession& session, int socket, std::string& why, int* number = nullptr);

}  // namespace rondo
