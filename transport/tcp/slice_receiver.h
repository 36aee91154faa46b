#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/error.h"
#include "transport/byte_stream.h"
#include "transport/fabric.h"
#include "transport/tcp/slice_header.h"
#include "transport/tcp/slots.h"

namespace rondo {

enum class StreamProgress {
  kNothing,
  kMoved,
  kStreamOver,  // ByteStream::error() says why
  kRefused,     // SliceReceiver::refusal() says what the peer sent
};

// The receiving half of a stream link: landings in the order of slices, filled from any of the streams. A landing is
// posted by the caller, claimed by the stream that brings its header, filled, and released by the caller. Nothing that
// a peer sends is used before it is compared with a landing's tag. One thread at a time.
class SliceReceiver {
 public:
  SliceReceiver(const LinkShape& shape, size_t streams, std::string peer_name);

  // Receiving, as Link says.
  bool can_post() const { return posted_ - released_ < landings_.size(); }
  void post(const SliceTag& tag, std::byte* landing);
  uint32_t unfilled() const { return static_cast<uint32_t>(posted_ - released_) - filled_; }
  const std::byte* arrived() const;
  uint32_t arrived_bytes() const { return landings_[released_ % landings_.size()].tag.bytes; }
  void release();

  // Reads from one stream until it has no more, or its next slice has no landing yet. Reads nothing while every posted
  // landing is filled: what comes early waits in the kernel.
  StreamProgress pump(size_t stream, ByteStream& source);
  const Error& refusal() const { return refusal_; }
  Link::Refused refused() const { return refused_; }
  // Every slice of which a part has come on this stream has come whole.
  bool has_whole_slices(size_t stream) const {
    return readers_[stream].landing == nullptr && readers_[stream].buffered() == 0;
  }

 private:
  // Where one slice goes. It is posted, claimed, filled, released, and used again by the slice that is depth later.
  struct Landing {
    SliceTag tag;
    std::byte* memory = nullptr;
    bool slot = false;     // the memory is a slot of the link's
    bool claimed = false;  // a stream has seen its header
    bool filled = false;
  };
  // Read-ahead of one stream. Bytes [begin, end) of `buffer` are read and not yet used: headers, and small payloads,
  // which cost a copy. Large ones are read straight into their landings, together with the next header, and into slots
  // on the only stream of a link together with their own, too.
  struct Reader {
    std::vector<std::byte> buffer;
    size_t begin = 0;
    size_t end = 0;
    Landing* landing = nullptr;  // the slice under way
    uint32_t landed = 0;         // bytes of it
    SliceHeader header;          // its own
    uint32_t early = 0;          // bytes of the next one's payload, read before its header was looked at
    size_t buffered() const { return end - begin; }
  };

  // The steps of pump(), for one stream. drained: the stream has no more for now.
  StreamProgress read_more(Reader& reader, ByteStream& source, bool& drained);
  Landing* expected();
  StreamProgress read_slice(Reader& reader, Landing& next, ByteStream& source, bool& drained);
  bool use_buffer(Reader& reader);
  bool begin_slice(Reader& reader);
  void advance_payload(Reader& reader, uint32_t bytes);
  void refuse(ErrorCode code, const SliceHeader& header, const std::string& why);

  uint32_t slice_bytes_;
  bool checked_;
  std::vector<Landing> landings_;
  Slots slots_;
  std::vector<Reader> readers_;
  // Slices counted from the first: posted_ >= claimed_ >= released_. On several streams claimed slices need not be the
  // lowest ones.
  uint64_t posted_ = 0;
  uint64_t claimed_ = 0;  // slices whose header has been seen and found right
  uint64_t released_ = 0;
  uint32_t filled_ = 0;  // landings filled and not yet released
  Error refusal_;
  Link::Refused refused_;
  std::string peer_name_;
};

}  // namespace rondo
