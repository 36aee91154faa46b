#pragma once

#include <memory>
#include <string>

#include "transport/auth/tls_session.h"
#include "transport/byte_stream.h"

namespace rondo {

// A ByteStream whose bytes travel over another one by TLS; the session's handshake is over. A record is verified before
// a byte of it is handed out; one that was changed, repeated, left out or moved ends the stream with kCorrupt. `peer`:
// for errors.
std::unique_ptr<ByteStream> make_sealed_stream(std::unique_ptr<ByteStream> inner, std::unique_ptr<TlsSession> session,
                                               std::string peer);

}  // namespace rondo
