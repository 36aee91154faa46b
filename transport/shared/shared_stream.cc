#include "transport/shared/shared_stream.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "kernels/cross_copy.h"
#include "ring/base/check.h"

namespace rondo {
namespace {

constexpr size_t kPieceBytes = kStreamPieceBytes;
constexpr size_t kPieces = kStreamPieces;
// The reader stores `taken` once in this many bytes or pieces: after each store the writer's next load fetches the
// cache line from the reader's core. Both limits are small parts of the ring, so a writer that waits for room gets some
// before the ring is empty.
constexpr size_t kShownBytes = 16 * 1024;
constexpr uint64_t kShownPieces = kPieces / 4;
// A piece needs its own bytes and, at the end of the ring, as many that are left out.
static_assert(kShownBytes + 3 * kPieceBytes <= kSmallByteRingBytes);

constexpr size_t up_to_line(size_t bytes) { return (bytes + 63) / 64 * 64; }

// A piece is announced beside its bytes, or beside the first thing that is read of it: no counter moves with each. Two
// lines: processors fetch them in pairs, and an envelope and 56 bytes fit in.
struct alignas(128) Cell {
  std::atomic<uint64_t> flag;  // (number of the piece, from 1 on, modulo 2^32) << 32 | bytes; stored last
  std::byte small[120];        // all of it if it fits; else it lies in the ring of bytes
};
static_assert(sizeof(Cell) == 128);
constexpr size_t kSmallBytes = sizeof(Cell::small);

// One direction. The last store of a call is sequentially consistent (which releases the bytes before it), since a
// doorbell's flag is read behind it; flags and `taken` are read with acquire.
//
// Pieces in the ring of bytes lie one behind the other, each from a line on; one that reached beyond the end begins at
// the start instead. Both sides know where from the lengths alone.
struct Ring {
  alignas(128) std::atomic<uint64_t> taken;  // pieces, by the reader; only grows
  Cell cells[kPieces];                       // by the number of the piece
  alignas(128) std::byte bytes[kByteRingBytes];
};

struct StreamMemory {
  std::atomic<uint32_t> closed[2];  // by the maker, by the other; stored after the last byte
  Ring rings[2];
};

// Takes bytes off the front of a vector.
class Parts {
 public:
  explicit Parts(const iovec* first) : part_(first) {}
  // Calls `use(memory, bytes)` for what makes up the next `bytes`, which there must be.
  template <typename Use>
  void take(size_t bytes, Use use) {
    while (bytes > 0) {
      const size_t run = std::min(bytes, part_->iov_len - used_);
      if (run > 0) use(static_cast<std::byte*>(part_->iov_base) + used_, run);
      bytes -= run;
      used_ += run;
      if (used_ < part_->iov_len) continue;
      ++part_;
      used_ = 0;
    }
  }

 private:
  const iovec* part_;
  size_t used_ = 0;
};

class SharedStream final : public ByteStream {
 public:
  explicit SharedStream(SharedStreamEnd end)
      : end_(std::move(end)),
        memory_(*reinterpret_cast<StreamMemory*>(end_.data)),
        out_(memory_.rings[end_.maker ? 0 : 1]),
        in_(memory_.rings[end_.maker ? 1 : 0]) {
    RONDO_CHECK(std::has_single_bit(end_.ring_bytes) && end_.ring_bytes >= kSmallByteRingBytes &&
                    end_.ring_bytes <= kByteRingBytes,
                "a ring that the memory holds");
  }

  ~SharedStream() override {
    if (::getpid() != pid_) return;  // the parent's: the child must not speak for it
    memory_.closed[end_.maker ? 0 : 1].store(1, std::memory_order_seq_cst);
    end_.bell->ring();
  }

  long read(const iovec* parts, int count) override {
    const bool gone = peer_gone();  // looked at first: what was written before the end is read before it
    const size_t wanted = bytes_of(parts, count);
    Parts to(parts);
    size_t moved = 0;
    while (moved < wanted && look()) {
      const size_t run = std::min(wanted - moved, piece_left_);
      to.take(run, [from = piece_](std::byte* part, size_t bytes) mutable {
        std::memcpy(part, from, bytes);
        from += bytes;
      });
      consume(run);
      moved += run;
    }
    if (moved > 0) return static_cast<long>(moved);
    const bool over = gone && !look();
    if (corrupt_) return -1;
    return over ? lost() : 0;
  }

  std::span<const std::byte> view() override {
    if (!look()) return {};
    return {piece_, piece_left_};
  }

  void consume(size_t bytes) override {
    piece_ += bytes;
    piece_left_ -= bytes;
    unshown_ += bytes;
    if (piece_left_ > 0) return;
    ++taken_;
    if (unshown_ < kShownBytes && taken_ - shown_ < kShownPieces) return;
    shown_ = taken_;
    unshown_ = 0;
    in_.taken.store(taken_, std::memory_order_seq_cst);
    end_.bell->ring();
  }

  long write(const iovec* parts, int count) override {
    if (corrupt_) return -1;
    if (peer_gone()) return lost();
    const size_t wanted = bytes_of(parts, count);
    Parts from(parts);
    size_t moved = 0;
    size_t piece = next_piece(wanted);
    while (piece > 0) {
      const uint64_t number = written_ + 1;
      fill(place(piece), piece, from);
      moved += piece;
      const size_t following = next_piece(wanted - moved);
      show(number, piece, following > 0 ? std::memory_order_release : std::memory_order_seq_cst);
      piece = following;
    }
    if (moved > 0) end_.bell->ring();
    return corrupt_ ? -1 : static_cast<long>(moved);
  }

  bool write_whole(const iovec* parts, int count) override {
    const size_t bytes = bytes_of(parts, count);
    if (corrupt_ || peer_gone() || bytes > kPieceBytes || next_piece(bytes) == 0) return false;
    Parts from(parts);
    const uint64_t number = written_ + 1;
    fill(place(bytes), bytes, from);
    show(number, bytes, std::memory_order_seq_cst);
    end_.bell->ring();
    return true;
  }

  bool set_stores(Stores stores) override {
    stores_ = stores;
    return true;
  }

  const Error& error() const override { return error_; }

 private:
  Stores stores() const {
    if (stores_) return *stores_;
    return end_.stores ? end_.stores->load(std::memory_order_relaxed) : Stores::kCached;
  }
  bool peer_gone() const {
    return memory_.closed[end_.maker ? 1 : 0].load(std::memory_order_acquire) != 0 ||
           end_.life->over.load(std::memory_order_acquire);
  }
  long lost() {
    error_ = {ErrorCode::kPeerLost, fmt::format("{} closed the connection", end_.peer_name), {}};
    return -1;
  }
  bool corrupt(const std::string& what) {
    corrupt_ = true;
    error_ = {ErrorCode::kProtocol, fmt::format("the memory shared with {} is corrupt: {}", end_.peer_name, what), {}};
    return false;
  }

  // Where the piece lies that follows what ends at `position`; positions only grow.
  uint64_t begin_of(uint64_t position, size_t bytes) const {
    const size_t to_end = end_.ring_bytes - place_of(position);
    return bytes <= to_end ? position : position + to_end;
  }
  size_t place_of(uint64_t position) const { return position & (end_.ring_bytes - 1); }

  // --- reading
  // True: piece_ has bytes to read. Costs one load while there are none.
  bool look() {
    if (piece_left_ > 0) return true;
    if (corrupt_) return false;
    Cell& cell = in_.cells[taken_ % kPieces];
    const uint64_t flag = cell.flag.load(std::memory_order_acquire);
    if (static_cast<uint32_t>(flag >> 32) != static_cast<uint32_t>(taken_ + 1)) return check_absent(flag);
    const auto bytes = static_cast<uint32_t>(flag);
    if (bytes == 0 || bytes > kPieceBytes) {
      return corrupt(fmt::format("piece {} claims {} bytes of at most {}", taken_, bytes, kPieceBytes));
    }
    // From here on only this side's own numbers count.
    piece_left_ = bytes;
    if (bytes <= kSmallBytes) {
      piece_ = cell.small;
      return true;
    }
    const uint64_t begin = begin_of(read_to_, bytes);
    piece_ = in_.bytes + place_of(begin);
    read_to_ = begin + up_to_line(bytes);
    return true;
  }

  // A cell that is not written yet shows the piece before, or nothing.
  bool check_absent(uint64_t flag) {
    const uint32_t before = taken_ < kPieces ? 0 : static_cast<uint32_t>(taken_ + 1 - kPieces);
    if (static_cast<uint32_t>(flag >> 32) == before) return false;
    return corrupt(fmt::format("piece {} shows the number {:#x}", taken_, flag));
  }

  // --- writing
  // Bytes of the next piece where `left` are still to be written. 0: the ring has no room for it, or `left` is 0.
  size_t next_piece(size_t left) {
    const size_t bytes = std::min(left, kPieceBytes);
    if (bytes == 0 || fits(bytes)) return bytes;
    const uint64_t taken = out_.taken.load(std::memory_order_acquire);
    if (taken < taken_seen_ || taken > written_) {
      corrupt(fmt::format("of {} pieces written, {} then {} are taken", written_, taken_seen_, taken));
      return 0;
    }
    if (taken == taken_seen_) return 0;
    taken_seen_ = taken;
    freed_to_ = ends_[(taken - 1) % kPieces];
    return fits(bytes) ? bytes : 0;
  }
  bool fits(size_t bytes) const {
    if (written_ - taken_seen_ == kPieces) return false;
    return bytes <= kSmallBytes || begin_of(written_to_, bytes) + up_to_line(bytes) - freed_to_ <= end_.ring_bytes;
  }
  // The memory of the next piece, which fits.
  std::byte* place(size_t bytes) {
    const uint64_t begin = begin_of(written_to_, bytes);
    const bool small = bytes <= kSmallBytes;
    if (!small) written_to_ = begin + up_to_line(bytes);
    const uint64_t piece = written_++ % kPieces;
    ends_[piece] = written_to_;
    return small ? out_.cells[piece].small : out_.bytes + place_of(begin);
  }
  void fill(std::byte* to, size_t bytes, Parts& from) {
    from.take(bytes, [this, to](const std::byte* part, size_t run) mutable {
      cross_copy(to, part, run, stores());
      to += run;
    });
  }
  void show(uint64_t number, size_t bytes, std::memory_order order) {
    out_.cells[(number - 1) % kPieces].flag.store((number << 32) | bytes, order);
  }

  const SharedStreamEnd end_;
  StreamMemory& memory_;
  Ring& out_;
  Ring& in_;
  const pid_t pid_ = ::getpid();

  // Own numbers: what the memory shows of them is never read back. Positions are in the ring of bytes, and only grow.
  uint64_t taken_ = 0;                // pieces that were taken whole
  uint64_t shown_ = 0;                // of them, to the peer
  size_t unshown_ = 0;                // bytes taken since
  uint64_t read_to_ = 0;              // the end of the last piece that was found
  const std::byte* piece_ = nullptr;  // of the piece that is being taken: what is left
  size_t piece_left_ = 0;
  uint64_t written_ = 0;                // pieces
  uint64_t written_to_ = 0;             // the end of the last
  uint64_t taken_seen_ = 0;             // pieces that the peer had taken at the last look
  uint64_t freed_to_ = 0;               // the end of the last of them
  std::array<uint64_t, kPieces> ends_;  // of the pieces under way
  std::optional<Stores> stores_;        // of set_stores(): before the end's
  bool corrupt_ = false;
  Error error_;
};

}  // namespace

size_t shared_stream_bytes() { return sizeof(StreamMemory); }

std::unique_ptr<ByteStream> make_shared_stream(SharedStreamEnd end) {
  return std::make_unique<SharedStream>(std::move(end));
}

}  // namespace rondo
