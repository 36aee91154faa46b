#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "rondo/error.h"

namespace rondo {

// A connected, ordered, reliable pair of byte pipes that never blocks: a socket in production, a seeded simulator in
// tests. One thread at a time.
class ByteStream {
 public:
  ByteStream() = default;
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;
  virtual ~ByteStream() = default;

  // Bytes moved, from the front of the vector on; 0 if none can be moved now. -1: the stream is over, and error() says
  // why (the peer closed, or a failure). At most 8 entries; entries of length 0 are allowed.
  virtual long read(const iovec* parts, int count) = 0;
  virtual long write(const iovec* parts, int count) = 0;

  // The last so many of the bytes written are still read from the caller's memory, which must not change while they
  // are. 0 in a stream that copies what it takes, as all do but sockets that send by MSG_ZEROCOPY.
  virtual uint64_t held() const { return 0; }
  // Lets held() fall by what is free by now. A system call while something is held; nothing else.
  virtual void reap() {}
  // Gives back what is held, at the price of the connection: afterwards the stream is over, and nothing reads the
  // caller's memory. May wait for a moment (zerocopy_socket.h). Does nothing where nothing is held.
  virtual void stop() {}

  // Valid after a -1.
  virtual const Error& error() const = 0;
};

}  // namespace rondo
