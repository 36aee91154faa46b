#pragma once

#include <cstdint>
#include <vector>

#include "transport/byte_stream.h"
#include "transport/fabric.h"
#include "transport/tcp/slice_header.h"
#include "transport/tcp/slice_receiver.h"
#include "transport/tcp/slots.h"

namespace rondo {

// The sending half of a stream link: a queue of at most `depth` slices, handed to whichever stream accepts them. It
// owns the headers and slots; a payload of send() stays the caller's, who must leave it as it is until sent() has
// passed it.
class SliceSender {
 public:
  SliceSender(const LinkShape& shape, size_t streams);

  // Sending, as Link says.
  bool can_send() const { return committed_ - sent_ < queue_.size(); }
  std::byte* reserve(uint32_t bytes);
  uint64_t commit(const SliceTag& tag);
  uint64_t send(const SliceTag& tag, const std::byte* payload);
  uint64_t sent() const { return sent_; }

  // Writes to one stream until it accepts no more or nothing is queued.
  StreamProgress pump(size_t stream, ByteStream& sink);

 private:
  // A slice of the queue. Its place is used again only once sent_ has passed it.
  struct Outgoing {
    SliceHeader header;
    const std::byte* payload = nullptr;
    bool written = false;
  };
  // Slices [first, last) of the queue are this stream's; `offset` bytes of the first (header included) are written.
  struct Writer {
    uint64_t first = 0;
    uint64_t last = 0;
    size_t offset = 0;
  };

  // The steps of pump(), for one stream.
  void assign(Writer& writer);
  int gather(const Writer& writer, iovec* parts) const;
  void advance(Writer& writer, size_t bytes);
  Outgoing& at(uint64_t index) { return queue_[index % queue_.size()]; }
  const Outgoing& at(uint64_t index) const { return queue_[index % queue_.size()]; }

  uint32_t slice_bytes_;
  bool checked_;
  std::vector<Outgoing> queue_;
  Slots slots_;
  std::vector<Writer> writers_;
  // Slices counted from the first: committed_ >= assigned_ >= sent_, and committed_ - sent_ <= depth.
  uint64_t committed_ = 0;
  uint64_t assigned_ = 0;  // slices given to a stream
  uint64_t sent_ = 0;
};

}  // namespace rondo
