#pragma once

#include <memory>
#include <string>

#include "transport/auth/records.h"
#include "transport/byte_stream.h"

namespace rondo {

// A ByteStream whose bytes travel over another one in sealed records. A record is verified before a byte of it is
// handed out; one that was changed, repeated, left out or moved ends the stream with kCorrupt. What is handed out is
// copied once more than without. `peer`: for errors.
std::unique_ptr<ByteStream> make_sealed_stream(std::unique_ptr<ByteStream> inner, const ConnectionKeys& keys,
                                               std::string peer);

}  // namespace rondo
