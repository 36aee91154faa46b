#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/byte_stream.h"
#include "transport/fabric.h"
#include "transport/link.h"

namespace rondo {

// A Link over 1..16 byte streams to the same peer (slices are handed to whichever stream accepts them, land in any
// order and are handed up in order). docs/wire.md describes the frames. peer_name is used in error messages.
std::unique_ptr<Link> make_stream_link(std::vector<std::unique_ptr<ByteStream>> streams, const LinkShape& shape,
                                       std::string peer_name);

}  // namespace rondo
