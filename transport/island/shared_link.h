#pragma once

#include <cstddef>
#include <memory>

#include "transport/fabric.h"
#include "transport/island/shared_channel.h"
#include "transport/link.h"

namespace rondo {

// What a link may ask of memory: a frame of a peer is no reason to map more.
constexpr bool sane_shape(const LinkShape& shape) {
  return shape.depth >= 2 && shape.depth <= 65 && shape.slice_bytes <= (16u << 20);
}

// A link's memory, both ways; equal at both ends, for they have agreed on the shape.
size_t shared_link_bytes(const LinkShape& shape);

// A Link over memory that both ends reach. A slice costs its sender one copy into its place, or none if it is written
// there (reserve); the receiver one copy if it gave a landing, else none: places are lent. Numbers and tags of the peer
// are compared before a byte is used; rubbish ends the link with kProtocol.
std::unique_ptr<Link> make_shared_link(ChannelEnd end, const LinkShape& shape);

}  // namespace rondo
