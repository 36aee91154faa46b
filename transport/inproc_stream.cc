#include "transport/inproc_stream.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

namespace rondo {
namespace {

// Bytes under way in each direction: as much as a socket's default buffer.
constexpr size_t kPipeBytes = 256 * 1024;

// One direction: a ring of bytes with one writer and one reader. `written` and `taken` only grow; both are stored
// sequentially consistent, since the doorbell's flag is read behind them.
struct Pipe {
  std::vector<std::byte> ring = std::vector<std::byte>(kPipeBytes);
  std::shared_ptr<Doorbell> reader_bell;  // shared by both ends: either may go first
  std::shared_ptr<Doorbell> writer_bell;
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> taken{0};
  std::atomic<bool> writer_gone{false};
  std::atomic<bool> reader_gone{false};

  size_t put(const iovec* parts, int count) {
    const uint64_t begin = written.load(std::memory_order_relaxed);
    size_t room = kPipeBytes - (begin - taken.load(std::memory_order_acquire));
    uint64_t at = begin;
    for (int i = 0; i < count && room > 0; ++i) {
      const auto* from = static_cast<const std::byte*>(parts[i].iov_base);
      for (size_t left = std::min(room, parts[i].iov_len); left > 0;) {
        const size_t run = std::min(left, kPipeBytes - at % kPipeBytes);
        std::memcpy(ring.data() + at % kPipeBytes, from, run);
        from += run, at += run, left -= run, room -= run;
      }
    }
    if (at == begin) return 0;
    written.store(at, std::memory_order_seq_cst);
    reader_bell->ring();
    return at - begin;
  }

  size_t take(const iovec* parts, int count) {
    const uint64_t begin = taken.load(std::memory_order_relaxed);
    size_t there = written.load(std::memory_order_acquire) - begin;
    uint64_t at = begin;
    for (int i = 0; i < count && there > 0; ++i) {
      auto* to = static_cast<std::byte*>(parts[i].iov_base);
      for (size_t left = std::min(there, parts[i].iov_len); left > 0;) {
        const size_t run = std::min(left, kPipeBytes - at % kPipeBytes);
        std::memcpy(to, ring.data() + at % kPipeBytes, run);
        to += run, at += run, left -= run, there -= run;
      }
    }
    if (at == begin) return 0;
    taken.store(at, std::memory_order_seq_cst);
    writer_bell->ring();
    return at - begin;
  }
};

class InprocStream final : public ByteStream {
 public:
  InprocStream(std::shared_ptr<Pipe> in, std::shared_ptr<Pipe> out, const std::string& peer_name)
      : in_(std::move(in)), out_(std::move(out)) {
    error_ = {ErrorCode::kPeerLost, peer_name + " closed the connection", {}};
  }
  ~InprocStream() override {
    out_->writer_gone.store(true);
    out_->reader_bell->ring();
    in_->reader_gone.store(true);
    in_->writer_bell->ring();
  }

  long read(const iovec* parts, int count) override {
    const bool gone = in_->writer_gone.load();  // before the bytes are looked at: what was written first is taken first
    const size_t bytes = in_->take(parts, count);
    return bytes == 0 && gone ? -1 : static_cast<long>(bytes);
  }
  long write(const iovec* parts, int count) override {
    if (out_->reader_gone.load()) return -1;
    return static_cast<long>(out_->put(parts, count));
  }
  const Error& error() const override { return error_; }

 private:
  std::shared_ptr<Pipe> in_;   // shared with the other end
  std::shared_ptr<Pipe> out_;  // likewise
  Error error_;
};

}  // namespace

std::pair<std::unique_ptr<ByteStream>, std::unique_ptr<ByteStream>> make_inproc_stream(
    std::shared_ptr<Doorbell> first_bell, std::shared_ptr<Doorbell> second_bell, std::string first_name,
    std::string second_name) {
  auto to_second = std::make_shared<Pipe>();
  auto to_first = std::make_shared<Pipe>();
  to_second->reader_bell = to_first->writer_bell = second_bell;
  to_second->writer_bell = to_first->reader_bell = first_bell;
  return {std::make_unique<InprocStream>(to_first, to_second, second_name),
          std::make_unique<InprocStream>(to_second, to_first, first_name)};
}

}  // namespace rondo
