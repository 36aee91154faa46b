#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "kernels/cross_copy.h"
#include "transport/island/shared_stream.h"

namespace rondo {

// Cells of a stream carry nothing but bytes: an envelope of a message and 56 bytes fit in.
struct StreamCells {
  struct Tag {};
  static constexpr bool kRing = true;
  static constexpr uint32_t depth = kStreamPieces, kEnds = depth;
  static constexpr size_t slot_bytes = 0;
  size_t ring_bytes;
};

// Orders: CellOrders, or what a test makes of them.
template <typename Orders>
class SharedStream final : public ByteStream {
 public:
  SharedStream(ChannelEnd end, size_t ring_bytes) : channel_(std::move(end), {ring_bytes}) {}

  long read(const iovec* parts, int count) override {
    const bool gone = channel_.peer_gone();  // looked at first: what was written before the end is read before it
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
    const uint64_t taken = channel_.in.number();
    if (unshown_ < kShownBytes && taken - shown_ < kShownPieces) return;
    shown_ = taken;
    unshown_ = 0;
    channel_.in.release(taken);
    channel_.ring_bell();
  }

  long write(const iovec* parts, int count) override {
    if (corrupt_) return -1;
    if (channel_.peer_gone()) return lost();
    const size_t moved = write_pieces(parts, bytes_of(parts, count));
    return corrupt_ ? -1 : static_cast<long>(moved);
  }

  bool write_whole(std::span<const std::byte> head, std::span<const std::byte> payload) override {
    const size_t bytes = head.size() + payload.size();
    if (bytes == 0 || corrupt_ || channel_.peer_gone() || !has_room(bytes)) return false;
    if (bytes > kStreamPieceBytes) {
      const iovec parts[] = {{const_cast<std::byte*>(head.data()), head.size()},
                             {const_cast<std::byte*>(payload.data()), payload.size()}};
      return write_pieces(parts, bytes) == bytes;
    }
    std::byte* const to = channel_.out.reserve(bytes);
    cross_copy(to, head.data(), head.size(), stores());
    cross_copy(to + head.size(), payload.data(), payload.size(), stores());
    channel_.out.publish(static_cast<uint32_t>(bytes), true);
    channel_.ring_bell();
    return true;
  }

  bool set_stores(Stores stores) override {
    stores_ = stores;
    return true;
  }

  const Error& error() const override { return error_; }

 private:
  // The reader shows what it has taken once in this many bytes or pieces: after each store the writer's next load
  // fetches the cache line from the reader's core. Both limits are small parts of the ring, so a writer that waits for
  // room gets some before the ring is empty.
  static constexpr size_t kShownBytes = 16 * 1024;
  static constexpr uint64_t kShownPieces = kStreamPieces / 4;
  // A piece needs its own bytes and, at the end of the ring, as many that are left out.
  static_assert(kShownBytes + 3 * kStreamPieceBytes <= kSmallByteRingBytes);

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

  Stores stores() const { return stores_ ? *stores_ : channel_.stores(); }
  long lost() {
    error_ = {ErrorCode::kPeerLost, fmt::format("{} closed the connection", channel_.peer_name()), {}};
    return -1;
  }
  bool corrupt(const std::string& what) {
    corrupt_ = true;
    error_ = channel_.corrupt(what);
    return false;
  }

  // True: piece_ has bytes to read. Costs one load while there are none.
  bool look() {
    if (piece_left_ > 0) return true;
    if (corrupt_) return false;
    const auto look = channel_.in.look();
    if (look.sight == Sight::kNothing) return false;
    const uint32_t bytes = look.ready();
    if (look.sight == Sight::kCorrupt || bytes == 0 || bytes > kStreamPieceBytes) {
      return corrupt(fmt::format("piece {} shows the flag {:#x}", channel_.in.number(), look.flag));
    }
    // From here on only this side's own numbers count.
    piece_left_ = bytes;
    piece_ = channel_.in.take(bytes);
    return true;
  }

  // As much of that as there is room for.
  size_t write_pieces(const iovec* parts, size_t bytes) {
    Parts from(parts);
    size_t moved = 0;
    size_t piece = next_piece(bytes);
    while (piece > 0) {
      fill(channel_.out.reserve(piece), piece, from);
      moved += piece;
      const size_t following = next_piece(bytes - moved);
      channel_.out.publish(static_cast<uint32_t>(piece), following == 0);
      piece = following;
    }
    if (moved > 0) channel_.ring_bell();
    return moved;
  }
  // Bytes of the next piece where `left` are still to be written. 0: the ring has no room for it, or `left` is 0.
  size_t next_piece(size_t left) {
    const size_t bytes = std::min(left, kStreamPieceBytes);
    return bytes > 0 && has_room(bytes) ? bytes : 0;
  }
  // For all of it.
  bool has_room(size_t bytes) {
    if (channel_.out.fits_in_pieces(bytes, kStreamPieceBytes)) return true;
    const uint64_t before = channel_.out.taken();
    const auto taken = channel_.out.look_at_taken();
    if (taken.sight == Sight::kCorrupt) {
      return corrupt(
          fmt::format("of {} pieces written, {} then {} are taken", channel_.out.number(), before, taken.number));
    }
    return taken.sight == Sight::kThere && channel_.out.fits_in_pieces(bytes, kStreamPieceBytes);
  }
  void fill(std::byte* to, size_t bytes, Parts& from) {
    from.take(bytes, [this, to](const std::byte* part, size_t run) mutable {
      cross_copy(to, part, run, stores());
      to += run;
    });
  }

  SharedChannel<StreamCells, Orders> channel_;
  // Own numbers: what the memory shows of them is never read back.
  uint64_t shown_ = 0;                // pieces taken whole that the peer knows of
  size_t unshown_ = 0;                // bytes taken since
  const std::byte* piece_ = nullptr;  // of the piece that is being taken: what is left
  size_t piece_left_ = 0;
  std::optional<Stores> stores_;  // of set_stores(): before the end's
  bool corrupt_ = false;
  Error error_;
};

}  // namespace rondo
