#include "transport/tcp/sealed_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "ring/base/check.h"

namespace rondo {
namespace {

// Written by one system call, and read by one: several records.
constexpr size_t kRecords = 4;
constexpr size_t kBufferBytes = kRecords * (kMostRecordBytes + kRecordOverhead);

// The first bytes of a list of parts, `limit` at most.
struct Front {
  iovec parts[ByteStream::kMostParts];
  int count = 0;
  size_t bytes = 0;
};

Front front_of(const iovec* parts, int count, size_t skip, size_t limit) {
  Front front;
  for (int i = 0; i < count && front.bytes < limit; ++i) {
    const size_t skipped = std::min(skip, parts[i].iov_len);
    skip -= skipped;
    const size_t bytes = std::min(parts[i].iov_len - skipped, limit - front.bytes);
    if (bytes == 0) continue;
    front.parts[front.count++] = {static_cast<std::byte*>(parts[i].iov_base) + skipped, bytes};
    front.bytes += bytes;
  }
  return front;
}

class SealedStream final : public ByteStream {
 public:
  SealedStream(std::unique_ptr<ByteStream> inner, const ConnectionKeys& keys, std::string peer)
      : inner_(std::move(inner)),
        sealer_(keys.cipher, keys.send),
        opener_(keys.cipher, keys.receive),
        peer_(std::move(peer)),
        out_(kBufferBytes),
        in_(kBufferBytes),
        plain_(kMostRecordBytes) {}

  // Bytes count as written once the inner stream has their whole record: so nothing is left here that nobody would
  // write. Until then they are offered again, as of every stream, and only what comes behind them is new.
  long write(const iovec* parts, int count) override {
    RONDO_CHECK(count <= kMostParts, "a stream takes a few parts at once");
    if (!error_.ok()) return -1;
    size_t written = 0;
    while (true) {
      if (!flush()) return error_.ok() ? static_cast<long>(written) : -1;
      written += std::exchange(held_, 0);
      RONDO_CHECK(written <= bytes_of(parts, count), "what was not written is offered again");
      if (!seal_some(parts, count, written)) return static_cast<long>(written);
    }
  }

  long read(const iovec* parts, int count) override {
    if (!error_.ok()) return -1;
    size_t got = 0;
    for (int i = 0; i < count; ++i) {
      auto* target = static_cast<std::byte*>(parts[i].iov_base);
      for (size_t done = 0; done < parts[i].iov_len;) {
        if (plain_begin_ == plain_end_ && !open_next()) return end_of_read(got);
        const size_t bytes = std::min(parts[i].iov_len - done, plain_end_ - plain_begin_);
        std::memcpy(target + done, plain_.data() + plain_begin_, bytes);
        plain_begin_ += bytes;
        done += bytes;
        got += bytes;
      }
    }
    return static_cast<long>(got);
  }

  const Error& error() const override { return error_; }
  bool ended() const override { return inner_->ended() && in_begin_ == in_end_; }

 private:
  // What was opened before the end is handed out first.
  long end_of_read(size_t got) {
    if (got > 0) return static_cast<long>(got);
    if (error_.ok()) error_ = std::exchange(ending_, Error{});
    return error_.ok() ? 0 : -1;
  }

  // True: nothing sealed is left here.
  bool flush() {
    while (out_begin_ < out_end_) {
      const iovec rest{out_.data() + out_begin_, out_end_ - out_begin_};
      const long moved = inner_->write(&rest, 1);
      if (moved < 0) error_ = inner_->error();
      if (moved <= 0) return false;
      out_begin_ += static_cast<size_t>(moved);
    }
    out_begin_ = out_end_ = 0;
    return true;
  }

  // Seals what follows the first `skip` bytes. False: there is nothing more.
  bool seal_some(const iovec* parts, int count, size_t skip) {
    for (size_t record = 0; record < kRecords; ++record) {
      const Front front = front_of(parts, count, skip + held_, kMostRecordBytes);
      if (front.bytes == 0) break;
      out_end_ += sealer_.seal(front.parts, front.count, out_.data() + out_end_);
      held_ += front.bytes;
    }
    return held_ > 0;
  }

  // The next record into plain_. False: not all of it is there, or the stream is over.
  bool open_next() {
    while (true) {
      if (!ending_.ok()) return false;
      const std::string_view there(reinterpret_cast<const char*>(in_.data()) + in_begin_, in_end_ - in_begin_);
      const long bytes = RecordOpener::record_bytes(there);
      if (bytes < 0) return refuse();
      if (bytes > 0 && there.size() >= static_cast<size_t>(bytes)) {
        const auto size = static_cast<size_t>(bytes);
        if (!opener_.open(there.substr(0, size), plain_.data())) return refuse();
        in_begin_ += size;
        plain_begin_ = 0;
        plain_end_ = size - kRecordOverhead;
        return true;
      }
      if (!read_more()) return false;
    }
  }

  bool read_more() {
    if (in_begin_ > 0) {
      std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
      in_end_ -= in_begin_;
      in_begin_ = 0;
    }
    const iovec room{in_.data() + in_end_, in_.size() - in_end_};
    const long moved = inner_->read(&room, 1);
    if (moved < 0) ending_ = inner_->error();
    if (moved <= 0) return false;
    in_end_ += static_cast<size_t>(moved);
    return true;
  }

  bool refuse() {
    ending_ = {ErrorCode::kCorrupt,
               fmt::format("a record from {} is not what it sealed: bytes were changed on their way", peer_),
               {}};
    return false;
  }

  const std::unique_ptr<ByteStream> inner_;
  RecordSealer sealer_;
  RecordOpener opener_;
  const std::string peer_;
  Error error_;
  Error ending_;  // of the inner stream, or of the records; not told yet
  std::vector<std::byte> out_, in_, plain_;
  size_t out_begin_ = 0, out_end_ = 0;
  size_t held_ = 0;  // plain bytes of the records in out_
  size_t in_begin_ = 0, in_end_ = 0;
  size_t plain_begin_ = 0, plain_end_ = 0;
};

}  // namespace

std::unique_ptr<ByteStream> make_sealed_stream(std::unique_ptr<ByteStream> inner, const ConnectionKeys& keys,
                                               std::string peer) {
  return std::make_unique<SealedStream>(std::move(inner), keys, std::move(peer));
}

}  // namespace rondo
