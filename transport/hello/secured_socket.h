#pragma once

#include <utility>

#include "ring/base/descriptor.h"
#include "transport/auth/records.h"

namespace rondo {

// A connection whose handshake is over: its socket, and the keys of what follows, if that is to be sealed.
struct SecuredSocket {
  SecuredSocket() = default;
  // Not explicit: without encryption a socket is all that there is.
  SecuredSocket(Descriptor connected, const ConnectionKeys& its_keys = {})
      : socket(std::move(connected)), keys(its_keys) {}

  bool valid() const { return socket.valid(); }

  Descriptor socket;
  ConnectionKeys keys;
};

}  // namespace rondo
