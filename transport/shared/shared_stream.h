#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "kernels/cross_copy.h"
#include "transport/byte_stream.h"
#include "transport/shared/memory_file.h"
#include "transport/shared/remote_bell.h"

namespace rondo {

// Bytes under way in each direction. More than a core's own cache holds: a line that is written again has left the
// reader's by then, and is had in a third of the time (docs/tuning.md, "Messages inside a host"). Pages are touched as
// bytes reach them. A power of two.
inline constexpr size_t kByteRingBytes = 2 << 20;
// The part of it that is used in an island of many ranks, where a rank has many streams.
inline constexpr size_t kSmallByteRingBytes = 256 * 1024;
// Pieces under way in each direction. A short message is one piece, so a rank may send this many before its peer looks.
// More cells would not stay in a core's first cache.
inline constexpr size_t kStreamPieces = 64;
// A long write goes in such pieces, so that the reader copies one while the next is written. A message of 16 KiB is
// one, with its envelope (docs/wire-p2p.md).
inline constexpr size_t kStreamPieceBytes = 16 * 1024 + 64;
// A stream's memory: two rings, the first from the side that made it.
size_t shared_stream_bytes();

struct SharedStreamEnd {
  std::shared_ptr<void> memory;  // keeps it mapped
  std::byte* data = nullptr;     // shared_stream_bytes(), zeroed before the first end was made
  bool maker = true;
  std::shared_ptr<RemoteBell> bell;  // as for SharedLinkEnd
  std::shared_ptr<PeerLife> life;
  std::string peer_name;
  size_t ring_bytes = kByteRingBytes;                 // that are used, a power of two, equal at both ends
  std::shared_ptr<const std::atomic<Stores>> stores;  // as SharedMemory::set_stores(); null: kCached
};

// A ByteStream over memory that both ends map: one copy in, one copy out. Counters of the peer are read once and
// bounds-checked; rubbish ends the stream with kProtocol.
std::unique_ptr<ByteStream> make_shared_stream(SharedStreamEnd end);

}  // namespace rondo
