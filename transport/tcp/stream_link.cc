#include "transport/tcp/stream_link.h"

#include <algorithm>
#include <utility>

#include "ring/base/check.h"
#include "transport/tcp/slice_receiver.h"
#include "transport/tcp/slice_sender.h"

namespace rondo {
namespace {

// Joins the two halves over the streams, and decides what the end of one stream means for the link.
class StreamLink final : public Link {
 public:
  StreamLink(std::vector<std::unique_ptr<ByteStream>> streams, const LinkShape& shape, std::string peer_name)
      : depth_(shape.depth),
        receiver_(shape, streams.size(), std::move(peer_name)),
        sender_(shape, streams.size()),
        streams_(std::move(streams)) {}

  uint32_t depth() const override { return depth_; }

  bool can_post() const override { return receiver_.can_post(); }
  void post(const SliceTag& tag, std::byte* landing) override { receiver_.post(tag, landing); }
  uint32_t unfilled() const override { return receiver_.unfilled(); }
  const std::byte* arrived() override { return receiver_.arrived(); }
  uint32_t arrived_bytes() const override { return receiver_.arrived_bytes(); }
  void release() override { receiver_.release(); }

  bool can_send() const override { return sender_.can_send(); }
  std::byte* reserve(uint32_t bytes) override { return sender_.reserve(bytes); }
  uint64_t commit(const SliceTag& tag) override { return sender_.commit(tag); }
  uint64_t send(const SliceTag& tag, const std::byte* payload) override { return sender_.send(tag, payload); }
  uint64_t sent() const override { return sender_.sent(); }

  // A stream that is over leaves the others alive: a peer that closed all of them in good order may have its last
  // slices still under way on the slower ones, after an outage for seconds. That is no error until all are over.
  bool pump() override {
    if (refused_) return false;
    bool moved = false;
    for (size_t i = 0; i < streams_.size() && !refused_; ++i) {
      if (streams_[i] == nullptr) continue;
      moved |= note(sender_.pump(i, *streams_[i]), i);
      if (streams_[i] != nullptr) moved |= note(receiver_.pump(i, *streams_[i]), i);
    }
    return moved;
  }

  Refused refused() const override { return receiver_.refused(); }
  const Error* error() const override { return error_.ok() ? nullptr : &error_; }

 private:
  // The end of a stream is a loss if it ended in error, in the middle of a slice, or if it was the last one.
  bool note(StreamProgress progress, size_t index) {
    std::unique_ptr<ByteStream>& stream = streams_[index];
    if (progress == StreamProgress::kStreamOver) {
      const std::unique_ptr<ByteStream> over = std::move(stream);
      const bool last = std::all_of(streams_.begin(), streams_.end(), [](const auto& other) { return !other; });
      const bool lost = last || !over->ended() || !receiver_.has_whole_slices(index);
      if (lost && error_.ok()) error_ = over->error();
    }
    if (progress == StreamProgress::kRefused) {
      refused_ = true;
      error_ = receiver_.refusal();
    }
    return progress == StreamProgress::kMoved;
  }

  uint32_t depth_;
  SliceReceiver receiver_;
  SliceSender sender_;
  Error error_;
  bool refused_ = false;
  std::vector<std::unique_ptr<ByteStream>> streams_;  // null once over
};

}  // namespace

std::unique_ptr<Link> make_stream_link(std::vector<std::unique_ptr<ByteStream>> streams, const LinkShape& shape,
                                       std::string peer_name) {
  RONDO_CHECK(!streams.empty() && streams.size() <= 16, "a link has 1 to 16 streams");
  RONDO_CHECK(shape.depth >= 2, "a link holds at least two slices");
  return std::make_unique<StreamLink>(std::move(streams), shape, std::move(peer_name));
}

}  // namespace rondo
