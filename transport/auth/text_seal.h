#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "transport/auth/tls_session.h"

namespace rondo {

// The bytes of a connection that is read and written as text: sealed where it has a session, else as they are. One
// thread at a time.
class TextSeal {
 public:
  // From here on, with a new connection's session, whose handshake is over; none: as they are.
  void use(std::unique_ptr<TlsSession> session) { session_ = std::move(session); }
  // Appends to `out` what travels for `plain`.
  void seal(std::string plain, std::string& out);
  // Appends to `plain` what is complete with `arrived`. False: the peer has not sealed this, and the connection is
  // over.
  bool open(std::string_view arrived, std::string& plain);

 private:
  // Null: the bytes travel as they are.
  std::unique_ptr<TlsSession> session_;
};

}  // namespace rondo
