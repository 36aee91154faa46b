#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "kernels/cross_copy.h"
#include "transport/island/shared_stream.h"

namespace rondo {

// Cells of a stream carry nothing but bytes: an envelope of a message and 56 bytes fit in. What is larger lies in a
// buffer, which the flag names.
struct StreamCells {
  struct Tag {};
  static constexpr uint32_t depth = kStreamPieces;
  static constexpr size_t slot_bytes = 0;
};

// What the flag of a piece says: its bytes, and the number of the buffer they lie in; 0 where they lie beside the flag.
struct StreamPiece {
  static constexpr uint32_t kBytesBits = 16;
  static constexpr uint32_t kSmallBytes = Cell<StreamCells::Tag>::kSmallBytes;
  uint32_t bytes, buffer;
  static constexpr StreamPiece of(uint32_t shown) { return {shown & ((1u << kBytesBits) - 1), shown >> kBytesBits}; }
  constexpr uint32_t shown() const { return buffer << kBytesBits | bytes; }
  constexpr bool small() const { return bytes <= kSmallBytes; }
};
static_assert(kStreamBuffers.bytes >> StreamPiece::kBytesBits == 0);

// Bytes in pieces: small ones beside their flags, larger ones in buffers that travel between the two ranks. Orders:
// CellOrders, or what a test makes of them.
template <typename Orders>
class SharedStream final : public ByteStream {
 public:
  using Buffers = TravelingBuffers<Orders>;

  SharedStream(ChannelEnd end, std::shared_ptr<Buffers> buffers)
      : buffers_(std::move(buffers)), makes_(end.first), channel_(end, {}) {
    buffers_->add(makes_, end.memory, end.data + kCellsEnd);
  }
  static size_t memory_bytes(const BufferShape& shape) { return kCellsEnd + Buffers::part_bytes(shape); }

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

  // A piece that is used up frees its cell and its buffer. The peer is rung only where it can see that (show_taken()),
  // or has got buffers back.
  void consume(size_t bytes) override {
    piece_ += bytes;
    piece_left_ -= bytes;
    unshown_ += bytes;
    if (piece_left_ > 0) return;
    if (in_buffer_) look_at_given_back();
    const bool given_back = in_buffer_ && buffers_->finish(buffer_);
    if (show_taken() || given_back) channel_.ring_bell();
  }

  // A peer that has gone reads nothing any more: the stream is over for writes at once, and for reads once they are
  // done.
  long write(const iovec* parts, int count) override {
    if (corrupt_) return -1;
    if (channel_.peer_gone()) return lost();
    const size_t moved = write_pieces(parts, bytes_of(parts, count));
    return corrupt_ ? -1 : static_cast<long>(moved);
  }

  // One piece where it fits, written past the vectors: the way of a short message.
  bool write_whole(std::span<const std::byte> head, std::span<const std::byte> payload) override {
    const size_t bytes = head.size() + payload.size();
    if (bytes == 0 || corrupt_ || channel_.peer_gone()) return false;
    // Most messages are short: they need a cell, and nothing of what a buffer needs.
    if (bytes <= StreamPiece::kSmallBytes) return has_cell() && write_piece(beside(bytes), head, payload);
    if (!has_room(bytes)) return false;
    if (bytes <= most_) return write_piece(reserve(bytes), head, payload);
    const iovec parts[] = {{const_cast<std::byte*>(head.data()), head.size()},
                           {const_cast<std::byte*>(payload.data()), payload.size()}};
    return write_pieces(parts, bytes) == bytes;
  }

  bool set_stores(Stores stores) override {
    stores_ = stores;
    return true;
  }

  const Error& error() const override { return error_; }

 private:
  static constexpr size_t kCellsEnd = ChannelLayout<StreamCells>({}).bytes;
  // The reader shows what it has taken once in this many bytes or pieces: after each store the writer's next load
  // fetches the cache line from the reader's core. Both are small parts of all that can be under way, so a writer that
  // waits for room gets some in time.
  static constexpr size_t kShownBytes = 16 * 1024;
  static constexpr uint64_t kShownPieces = kStreamPieces / 4;

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

  // Ends the stream. -1.
  long lost() {
    error_ = {ErrorCode::kPeerLost, fmt::format("{} closed the connection", channel_.peer_name()), {}};
    return -1;
  }
  [[gnu::cold, gnu::noinline]] bool corrupt(const std::string& what) {
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
    const StreamPiece piece = StreamPiece::of(look.ready());
    if (look.sight == Sight::kCorrupt || !accept(piece)) return wrong_flag(look.flag);
    // From here on only this side's own numbers count.
    const std::byte* const beside = channel_.in.take(0);
    piece_ = in_buffer_ ? buffers_->place(buffer_) : beside;
    piece_left_ = piece.bytes;
    return true;
  }
  [[gnu::cold, gnu::noinline]] bool wrong_flag(uint64_t flag) {
    return corrupt(fmt::format("piece {} shows the flag {:#x}", channel_.in.number(), flag));
  }
  // Whether the peer can have written it. If so: where it lies.
  bool accept(const StreamPiece& piece) {
    in_buffer_ = !piece.small();
    if (!in_buffer_) return piece.bytes > 0 && piece.buffer == 0;
    buffer_ = buffers_->number(piece.buffer, makes_);
    return !makes_ && piece.bytes <= buffers_->shape().bytes && buffers_->receive(buffer_);
  }
  // True: the peer can see it now, and may wait for that.
  bool show_taken() {
    const uint64_t taken = channel_.in.number();
    if (unshown_ < kShownBytes && taken - shown_ < kShownPieces) return false;
    unshown_ = 0;
    channel_.in.release(shown_ = taken);
    return true;
  }

  // The place of a piece to be filled and published.
  struct PieceRoom {
    std::byte* data;
    uint32_t shown;  // by its flag
    Stores stores;
  };

  // Writes as much of it as there is room for. Returns its bytes.
  size_t write_pieces(const iovec* parts, size_t bytes) {
    Parts from(parts);
    size_t moved = 0;
    size_t piece = next_piece(bytes);
    while (piece > 0) {
      const PieceRoom place = reserve(piece);
      from.take(piece, [to = place.data, &place](const std::byte* part, size_t run) mutable {
        cross_copy(to, part, run, place.stores);
        to += run;
      });
      moved += piece;
      const size_t following = next_piece(bytes - moved);
      channel_.out.publish(place.shown, following == 0);
      piece = following;
    }
    if (moved > 0) channel_.ring_bell();
    return moved;
  }
  // Bytes of the next piece where `left` are still to be written. 0: there is no room for it, or `left` is 0.
  size_t next_piece(size_t left) {
    const size_t bytes = std::min(left, most_);
    if (bytes == 0 || has_room(bytes)) return bytes;
    return robbed() ? std::min<size_t>(left, StreamPiece::kSmallBytes) : 0;
  }
  // What was written is taken, but for what the reader does not show yet, and the peer holds all buffers: they are in
  // its own pieces, which this rank does not read. It must not wait for that.
  bool robbed() {
    if (!makes_ || buffers_->owned() > 0) return false;
    look_at_taken();
    return !corrupt_ && channel_.out.number() - channel_.out.taken() < kShownPieces;
  }
  bool write_piece(const PieceRoom& place, std::span<const std::byte> head, std::span<const std::byte> payload) {
    cross_copy(place.data, head.data(), head.size(), place.stores);
    cross_copy(place.data + head.size(), payload.data(), payload.size(), place.stores);
    channel_.out.publish(place.shown, true);
    channel_.ring_bell();
    return true;
  }
  // For a small piece.
  bool has_cell() { return channel_.out.fits() || (look_at_taken() && channel_.out.fits()); }
  // For all of it.
  bool has_room(size_t bytes) {
    size_t whole = 0, rest = bytes;
    if (bytes > most_) whole = bytes / most_, rest = bytes % most_;  // a division takes as long as a short message
    const size_t pieces = whole + (rest > 0 ? 1 : 0);
    const size_t buffers = makes_ ? whole + (rest > StreamPiece::kSmallBytes ? 1 : 0) : 0;
    if (!channel_.out.fits(pieces) && !look_at_taken()) return false;
    if (buffers_->owned() < buffers && !look_at_given_back()) return false;
    return channel_.out.fits(pieces) && buffers_->owned() >= buffers;
  }
  bool look_at_taken() {
    const uint64_t before = channel_.out.taken();
    const auto taken = channel_.out.look_at_taken();
    return taken.sight == Sight::kCorrupt ? wrong_count(before, taken.number) : taken.sight == Sight::kThere;
  }
  [[gnu::cold, gnu::noinline]] bool wrong_count(uint64_t before, uint64_t then) {
    return corrupt(fmt::format("of {} pieces written, {} then {} are taken", channel_.out.number(), before, then));
  }
  bool look_at_given_back() {
    const Sight sight = buffers_->look();
    if (sight != Sight::kCorrupt) return sight == Sight::kThere;
    return corrupt("a buffer is given back that cannot be");
  }

  PieceRoom reserve(size_t bytes) {
    const PieceRoom cell = beside(bytes);
    if (bytes <= StreamPiece::kSmallBytes) return cell;
    const Stores stores = stores_ ? *stores_ : channel_.stores();
    const uint32_t buffer = buffers_->take(stores);
    const StreamPiece piece{static_cast<uint32_t>(bytes), buffers_->number(buffer, makes_)};
    return {buffers_->place(buffer), piece.shown(), stores};
  }
  // The same for a small one. Requires has_cell().
  PieceRoom beside(size_t bytes) {
    return {channel_.out.reserve(0), StreamPiece{static_cast<uint32_t>(bytes), 0}.shown(), Stores::kCached};
  }

  const std::shared_ptr<Buffers> buffers_;  // shared with the stream of the other direction
  const bool makes_;                        // this end's rank has made it
  const size_t most_ = makes_ ? buffers_->shape().bytes : StreamPiece::kSmallBytes;  // of a piece that is written
  SharedChannel<StreamCells, Orders> channel_;
  // Own numbers: what the memory shows of them is never read back.
  uint64_t shown_ = 0;                // pieces taken whole that the peer knows of
  size_t unshown_ = 0;                // bytes taken since
  const std::byte* piece_ = nullptr;  // of the piece that is being taken: what is left
  size_t piece_left_ = 0;
  bool in_buffer_ = false;  // it lies in buffer_
  uint32_t buffer_ = 0;
  std::optional<Stores> stores_;  // of set_stores(): before the end's
  bool corrupt_ = false;
  Error error_;
};

}  // namespace rondo
