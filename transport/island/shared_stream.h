#pragma once

#include <cstddef>
#include <memory>

#include "transport/byte_stream.h"
#include "transport/island/shared_channel.h"

namespace rondo {

// Bytes under way in each direction. More than a core's own cache holds: a line that is written again has left the
// reader's by then, and is had in a third of the time (docs/tuning.md, "Messages inside a host"). Pages are touched as
// bytes reach them. A power of two.
inline constexpr size_t kByteRingBytes = 2 << 20;
// In an island of many ranks, where a rank has many streams, and between threads.
inline constexpr size_t kSmallByteRingBytes = 256 * 1024;
// Pieces under way in each direction. A short message is one piece, so a rank may send this many before its peer looks.
// More cells would not stay in a core's first cache.
inline constexpr size_t kStreamPieces = 64;
// A long write goes in such pieces, so that the reader copies one while the next is written. A message of 16 KiB is
// one, with its envelope (docs/wire-p2p.md).
inline constexpr size_t kStreamPieceBytes = 16 * 1024 + 64;

// A stream's memory. ring_bytes: equal at both ends.
size_t shared_stream_bytes(size_t ring_bytes);

// A ByteStream over memory that both ends reach: one copy in, one copy out. The first end is that of the rank that made
// it. Numbers of the peer are compared before a byte is used; rubbish ends the stream with kProtocol.
std::unique_ptr<ByteStream> make_shared_stream(ChannelEnd end, size_t ring_bytes);

}  // namespace rondo
