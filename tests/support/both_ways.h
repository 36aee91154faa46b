#pragma once

#include <memory>
#include <utility>

#include "transport/byte_stream.h"

namespace rondo::testing {

// What a rank has to a peer once both have made a stream, as one: it writes on its own and reads from the peer's.
class BothWays final : public ByteStream {
 public:
  BothWays(std::unique_ptr<ByteStream> to, std::unique_ptr<ByteStream> from)
      : to_(std::move(to)), from_(std::move(from)) {}

  long read(const iovec* parts, int count) override { return ask(*from_, from_->read(parts, count)); }
  std::span<const std::byte> view() override { return from_->view(); }
  void consume(size_t bytes) override { from_->consume(bytes); }
  long write(const iovec* parts, int count) override { return ask(*to_, to_->write(parts, count)); }
  bool write_whole(std::span<const std::byte> head, std::span<const std::byte> payload) override {
    return to_->write_whole(head, payload);
  }
  bool set_stores(Stores stores) override { return to_->set_stores(stores); }
  const Error& error() const override { return (failed_ ? failed_ : to_.get())->error(); }

 private:
  long ask(const ByteStream& stream, long moved) {
    if (moved < 0) failed_ = &stream;
    return moved;
  }
  const std::unique_ptr<ByteStream> to_, from_;
  const ByteStream* failed_ = nullptr;
};

}  // namespace rondo::testing
