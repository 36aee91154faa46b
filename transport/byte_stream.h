#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>

#include "kernels/cross_copy.h"
#include "rondo/error.h"

namespace rondo {

// A connected, ordered, reliable pair of byte pipes that never blocks: a socket or shared memory in production, a
// seeded simulator in tests. One thread at a time. The caller's memory is touched during the calls only. Bytes have no
// bounds here: slices and messages bring their own headers.
class ByteStream {
 public:
  ByteStream() = default;
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;
  virtual ~ByteStream() = default;

  static constexpr int kMostParts = 8;  // four slices, each a header and a payload

  // Bytes moved, from the front of the vector on; 0 if none can be moved now. -1: the stream is over, and error() says
  // why (the peer closed, or a failure). At most kMostParts entries; entries of length 0 are allowed.
  virtual long read(const iovec* parts, int count) = 0;
  // Streams over memory lend what read() would copy next: bytes that lie together, none of them if nothing is there or
  // the stream is over (ask read()). A peer may still write to them: who interprets a byte copies it first. They stay
  // until consume(), read() or the end of the stream.
  virtual std::span<const std::byte> view() { return {}; }
  // Takes the first of them. Requires that view() has lent as many.
  virtual void consume(size_t) {}
  // A stream may keep what it has not counted as written (a record that is sealed already). The next write() must begin
  // with the same bytes, and offer at least as many.
  virtual long write(const iovec* parts, int count) = 0;
  // Writes all of both, if that costs no system call and there is room now. False: nothing has happened; write() it.
  virtual bool write_whole(std::span<const std::byte> /*head*/, std::span<const std::byte> /*payload*/) {
    return false;
  }
  // How writes store what the peer reads, from now on. False: this stream has no choice.
  virtual bool set_stores(Stores) { return false; }

  // Valid after a -1.
  virtual const Error& error() const = 0;
  // After a -1 of read(): the peer has closed the stream, and all that it wrote has come. False where nobody asks.
  virtual bool ended() const { return false; }
};

// What a stream through memory takes at once, its envelope included, if both ranks have read all that the other has
// written before.
inline constexpr size_t kTakenByMemory = 112 * 1024 + 64;

inline size_t bytes_of(const iovec* parts, int count) {
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += parts[i].iov_len;
  return bytes;
}

}  // namespace rondo
