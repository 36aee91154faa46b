#pragma once

#include <cstddef>
#include <memory>

#include "transport/byte_stream.h"
#include "transport/island/shared_channel.h"
#include "transport/island/traveling_buffers.h"

namespace rondo {

// Pieces under way in each direction. A short message is one piece, so a rank may send this many before its peer looks.
// More cells would not stay in a core's first cache.
inline constexpr size_t kStreamPieces = 64;
// What the maker of a stream writes goes in pieces of a buffer each, so that the reader copies one while the next is
// written: a message of 16 KiB is one, with its envelope (docs/wire-p2p.md). There are more buffers than a core's own
// cache holds (docs/tuning.md, "Messages inside a host"). Pages are touched as bytes reach them.
inline constexpr BufferShape kStreamBuffers{16 * 1024 + 64, 128};
// In an island of many ranks, where a rank has many streams, and between threads.
inline constexpr BufferShape kSmallStreamBuffers{8 * 1024 + 64, 32};

static_assert(kStreamBuffers.least_left() * kStreamBuffers.bytes >= kTakenByMemory);
static_assert(kSmallStreamBuffers.least_left() * kSmallStreamBuffers.bytes >= kTakenByMemory);

using StreamBuffers = TravelingBuffers<CellOrders>;

// A stream's memory.
size_t shared_stream_bytes(const BufferShape& shape);

// A ByteStream over memory that both ends reach: one copy in, one copy out. The first end is that of the rank that made
// it; the other one answers by pieces that lie beside their flags. buffers: this rank's, of the streams of both
// directions, which one thread uses at a time. Numbers of the peer are compared before a byte is used; rubbish ends the
// stream with kProtocol.
std::unique_ptr<ByteStream> make_shared_stream(ChannelEnd end, std::shared_ptr<StreamBuffers> buffers);

}  // namespace rondo
