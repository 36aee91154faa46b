#include "transport/tcp/sealed_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "ring/base/check.h"

namespace rondo {
namespace {

// A slice and its header go by one write of the inner stream, though they lie apart.
constexpr size_t kGatheredBytes = 4 * TlsSession::kRecordBytes;
static_assert(kGatheredBytes <= TlsSession::kBatchBytes);

// The session's records go by this object as its carrier, over the inner stream.
class SealedStream final : public ByteStream, TlsSession::Carrier {
 public:
  SealedStream(std::unique_ptr<ByteStream> inner, std::unique_ptr<TlsSession> session, std::string peer)
      : inner_(std::move(inner)), session_(std::move(session)), peer_(std::move(peer)) {
    session_->read_ahead();
  }

  // Until the inner stream has all records of a batch its bytes are offered again, as of every stream: so nothing is
  // left here that nobody would write.
  long write(const iovec* parts, int count) override {
    RONDO_CHECK(count <= kMostParts, "a stream takes a few parts at once");
    if (!error_.ok()) return -1;
    const size_t all = bytes_of(parts, count);
    size_t written = 0;
    while (written < all) {
      const std::span<const std::byte> front = front_of(parts, count, written);
      const long moved = session_->write(*this, front.data(), front.size());
      if (moved < 0) return fail();
      if (moved == 0) break;
      written += static_cast<size_t>(moved);
      RONDO_CHECK(written <= all, "what was not written is offered again");
    }
    return static_cast<long>(written);
  }

  // What was opened before the end is handed out first.
  long read(const iovec* parts, int count) override {
    if (!error_.ok()) return -1;
    size_t got = 0;
    for (int i = 0; i < count; ++i) {
      auto* target = static_cast<std::byte*>(parts[i].iov_base);
      for (size_t done = 0; done < parts[i].iov_len;) {
        const long moved = session_->read(*this, target + done, parts[i].iov_len - done);
        if (moved <= 0 && got > 0) return static_cast<long>(got);
        if (moved <= 0) return moved == 0 ? 0 : fail();
        done += static_cast<size_t>(moved);
        got += static_cast<size_t>(moved);
      }
    }
    return static_cast<long>(got);
  }

  const Error& error() const override { return error_; }
  bool ended() const override { return inner_->ended() && session_->between_records(); }

 private:
  // TlsSession::Carrier, which the session calls in its own read() and write().
  long read(void* target, size_t bytes) override {
    const iovec part{target, bytes};
    return inner_->read(&part, 1);
  }
  long write(const void* bytes, size_t size) override {
    const iovec part{const_cast<void*>(bytes), size};
    return inner_->write(&part, 1);
  }

  // What follows the first `skip` bytes: in place, or gathered where it lies in several small parts. The gathered bytes
  // stay until the next call, which is as long as the session needs them.
  std::span<const std::byte> front_of(const iovec* parts, int count, size_t skip) {
    size_t bytes = 0;
    for (int i = 0; i < count && bytes < sizeof gathered_; ++i) {
      const size_t skipped = std::min(skip, parts[i].iov_len);
      skip -= skipped;
      const auto* part = static_cast<const std::byte*>(parts[i].iov_base) + skipped;
      const size_t size = parts[i].iov_len - skipped;
      if (bytes == 0 && (size >= sizeof gathered_ || i + 1 == count)) return {part, size};
      const size_t taken = std::min(size, sizeof gathered_ - bytes);
      if (taken > 0) std::memcpy(gathered_ + bytes, part, taken);
      bytes += taken;
    }
    return {gathered_, bytes};
  }

  // Forgery counts before what it has brought about on the inner stream.
  long fail() {
    error_ = inner_->error();
    if (session_->forged()) {
      error_ = {ErrorCode::kCorrupt,
                fmt::format("a record from {} is not what it sealed: bytes were changed on their way", peer_),
                {}};
    }
    return -1;
  }

  const std::unique_ptr<ByteStream> inner_;
  const std::unique_ptr<TlsSession> session_;
  const std::string peer_;
  Error error_;
  // Holds a write's first parts during the call.
  std::byte gathered_[kGatheredBytes];
};

}  // namespace

std::unique_ptr<ByteStream> make_sealed_stream(std::unique_ptr<ByteStream> inner, std::unique_ptr<TlsSession> session,
                                               std::string peer) {
  return std::make_unique<SealedStream>(std::move(inner), std::move(session), std::move(peer));
}

}  // namespace rondo
