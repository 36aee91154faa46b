#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "transport/byte_stream.h"

namespace rondo::fuzz {

// A stream that gives what it was fed, at most `most` bytes a call, and takes whatever is written.
class FedStream final : public ByteStream {
 public:
  // lends: view() shows what is there. `bytes` must outlive it.
  FedStream(std::string_view bytes, size_t most, bool lends)
      : left_(bytes), most_(std::max<size_t>(1, most)), lends_(lends) {}

  long read(const iovec* parts, int count) override {
    size_t moved = 0;
    const size_t there = std::min(most_, left_.size());
    for (int i = 0; i < count; ++i) {
      const size_t bytes = std::min(parts[i].iov_len, there - moved);
      if (bytes > 0) std::memcpy(parts[i].iov_base, left_.data() + moved, bytes);
      moved += bytes;
    }
    left_.remove_prefix(moved);
    return static_cast<long>(moved);
  }
  std::span<const std::byte> view() override {
    if (!lends_) return {};
    return {reinterpret_cast<const std::byte*>(left_.data()), std::min(most_, left_.size())};
  }
  void consume(size_t bytes) override { left_.remove_prefix(bytes); }
  long write(const iovec* parts, int count) override {
    long bytes = 0;
    for (int i = 0; i < count; ++i) bytes += static_cast<long>(parts[i].iov_len);
    return bytes;
  }
  const Error& error() const override { return none_; }

 private:
  std::string_view left_;
  const size_t most_;
  const bool lends_;
  Error none_;
};

}  // namespace rondo::fuzz
