#include "transport/shared/shared_stream.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "kernels/cross_copy.h"

namespace rondo {
namespace {

// A long write is shown in such pieces, so that the reader copies one while the next is written.
constexpr size_t kPieceBytes = 16 * 1024;
// Taken bytes are shown to the writer so many at a time: each look of its costs a cache line that the other core holds.
// A writer that waits for room has some again before the ring is empty.
constexpr size_t kShownBytes = 16 * 1024;
static_assert(kShownBytes < kByteRingBytes);

// One direction. `written` and `taken` only grow; the last store of a call is sequentially consistent (which releases
// the bytes before it), since a doorbell's flag is read behind it; they are read with acquire.
struct Ring {
  alignas(128) std::atomic<uint64_t> written;  // by the writer
  alignas(128) std::atomic<uint64_t> taken;    // by the reader
  alignas(128) std::byte bytes[kByteRingBytes];
};

struct StreamMemory {
  std::atomic<uint32_t> closed[2];  // by the maker, by the other; stored after the last byte
  Ring rings[2];
};

class SharedStream final : public ByteStream {
 public:
  explicit SharedStream(SharedStreamEnd end)
      : end_(std::move(end)),
        memory_(*reinterpret_cast<StreamMemory*>(end_.data)),
        out_(memory_.rings[end_.maker ? 0 : 1]),
        in_(memory_.rings[end_.maker ? 1 : 0]) {}

  ~SharedStream() override {
    if (::getpid() != pid_) return;  // the parent's: the child must not speak for it
    memory_.closed[end_.maker ? 0 : 1].store(1, std::memory_order_seq_cst);
    end_.bell->ring();
  }

  long read(const iovec* parts, int count) override {
    if (corrupt_) return -1;
    const bool gone = peer_gone();  // looked at first: what was written before the end is read before it
    const uint64_t there = look_at_written();
    if (there > kByteRingBytes) return corrupt("bytes written", there);
    const size_t bytes = each_run(parts, count, taken_, there, [this](std::byte* part, size_t at, size_t run) {
      std::memcpy(part, in_.bytes + at, run);
    });
    if (bytes == 0) return gone && there == 0 ? lost() : 0;
    consume(bytes);
    return static_cast<long>(bytes);
  }

  std::span<const std::byte> view() override {
    const uint64_t there = look_at_written();
    if (corrupt_ || there > kByteRingBytes) return {};
    const size_t at = taken_ % kByteRingBytes;
    return {in_.bytes + at, std::min<size_t>(there, kByteRingBytes - at)};
  }

  void consume(size_t bytes) override {
    taken_ += bytes;
    if (taken_ - shown_ < kShownBytes) return;
    shown_ = taken_;
    in_.taken.store(taken_, std::memory_order_seq_cst);
    end_.bell->ring();
  }

  long write(const iovec* parts, int count) override {
    if (corrupt_) return -1;
    if (peer_gone()) return lost();
    size_t wanted = 0;
    for (int i = 0; i < count; ++i) wanted += parts[i].iov_len;
    if (wanted > room()) taken_seen_ = out_.taken.load(std::memory_order_acquire);
    if (room() > kByteRingBytes) return corrupt("bytes taken", written_ - taken_seen_);
    const size_t bytes = each_run(parts, count, written_, room(), [this](const std::byte* part, size_t at, size_t run) {
      cross_copy(out_.bytes + at, part, run, stores());
      written_ += run;
      if (run == kPieceBytes) out_.written.store(written_, std::memory_order_release);
    });
    if (bytes == 0) return 0;
    out_.written.store(written_, std::memory_order_seq_cst);
    end_.bell->ring();
    return static_cast<long>(bytes);
  }

  const Error& error() const override { return error_; }

 private:
  Stores stores() const { return end_.stores ? end_.stores->load(std::memory_order_relaxed) : Stores::kCached; }
  uint64_t look_at_written() const { return in_.written.load(std::memory_order_acquire) - taken_; }
  // More than the ring has where the peer's counter is wrong.
  uint64_t room() const { return kByteRingBytes - (written_ - taken_seen_); }
  bool peer_gone() const {
    return memory_.closed[end_.maker ? 1 : 0].load(std::memory_order_acquire) != 0 ||
           end_.life->over.load(std::memory_order_acquire);
  }
  long lost() {
    error_ = {ErrorCode::kPeerLost, fmt::format("{} closed the connection", end_.peer_name), {}};
    return -1;
  }
  long corrupt(const char* what, uint64_t number) {
    corrupt_ = true;
    error_ = {ErrorCode::kProtocol,
              fmt::format("the memory shared with {} is corrupt: {} {} ahead", end_.peer_name, what, number),
              {}};
    return -1;
  }

  // Calls `copy(part of memory, place in the ring, bytes)` for at most `most` bytes from `position` on, for pieces of
  // at most kPieceBytes.
  template <typename Copy>
  static size_t each_run(const iovec* parts, int count, uint64_t position, uint64_t most, Copy copy) {
    uint64_t moved = 0;
    for (int i = 0; i < count && moved < most; ++i) {
      auto* part = static_cast<std::byte*>(parts[i].iov_base);
      for (size_t left = std::min<uint64_t>(parts[i].iov_len, most - moved); left > 0;) {
        const size_t at = (position + moved) % kByteRingBytes;
        const size_t run = std::min({left, kByteRingBytes - at, kPieceBytes});
        copy(part, at, run);
        part += run, left -= run, moved += run;
      }
    }
    return moved;
  }

  const SharedStreamEnd end_;
  StreamMemory& memory_;
  Ring& out_;
  Ring& in_;
  const pid_t pid_ = ::getpid();
  uint64_t written_ = 0, taken_ = 0;  // own counters: what the memory shows of them is never read back
  uint64_t shown_ = 0;                // of taken_, to the peer
  uint64_t taken_seen_ = 0;           // by the peer, at the last look
  bool corrupt_ = false;
  Error error_;
};

}  // namespace

size_t shared_stream_bytes() { return sizeof(StreamMemory); }

std::unique_ptr<ByteStream> make_shared_stream(SharedStreamEnd end) {
  return std::make_unique<SharedStream>(std::move(end));
}

}  // namespace rondo
