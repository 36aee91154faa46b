#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "transport/island/cell_ring.h"

namespace rondo {

// The orderings that a board rests on besides those of its rings: two of barriers, four of accesses. Tests weaken each
// in turn: the thread sanitizer objects, or (kEnter, kClose) both sides miss each other.
struct BoardOrders : CellOrders {
  // A rank that sees an arrival sees what was done before it.
  static constexpr std::memory_order kArrive = std::memory_order_seq_cst;
  static constexpr std::memory_order kSeeArrival = std::memory_order_acquire;
  // Accesses and closing: each side stores its own word and then reads the other's, so one of them at least sees the
  // other's. A word that says "left" releases what was touched to the owner, who acquires it.
  static constexpr std::memory_order kEnter = std::memory_order_seq_cst;
  static constexpr std::memory_order kLeave = std::memory_order_release;
  static constexpr std::memory_order kClose = std::memory_order_seq_cst;
  static constexpr std::memory_order kSeeAccess = std::memory_order_seq_cst;
};

// Memory in which every rank of an island posts what all others may read: a ring of cells
// (transport/island/cell_ring.h) of each rank, with all others as readers. Every rank posts once a round, and all ranks
// know the lengths of all posts, and thereby where they are. A rank posts round k once it has read what it needs of
// round k - 1; so a post of round k says that its writer needs no earlier post any more, and no reader stores anything
// else.
//
// Beside the posts every rank has a number for each lane, which says in which barrier of a plan over windows it is; and
// two words by which it takes its own buffers out of the others' reach after a failure (GracePeriod).
//
// Whatever another rank writes may be anything at any time. One thread at a time.
template <typename Orders>
class BasicPostBoard {
 public:
  // Rounds that a rank which takes nothing from the others may be ahead of them, and one.
  static constexpr uint32_t kDepth = 8;
  static constexpr size_t kPostBytes = 64 * 1024;
  static constexpr size_t kLanes = 16;
  static constexpr size_t kRingBytes = 2 * 1024 * 1024;
  // Two posts in a row never overlap. For many ranks: the memory of a rank grows with their number.
  static constexpr size_t kFewestRingBytes = 4 * kPostBytes;

  struct Cells {
    using Tag = uint64_t;  // fingerprint of the operation
    static constexpr bool kSlots = true, kRing = true;
    static constexpr uint32_t depth = kDepth, kEnds = depth;
    // 4 KiB, and a cell's size so that slots do not share sets of a cache. Larger posts are faster in a ring beyond a
    // core's cache than in places whose lines the reader's cache holds (docs/tuning.md, "One shot").
    static constexpr size_t slot_bytes = 4 * 1024 + kCellBytes;
    size_t ring_bytes;
  };

  // A rank's memory, zeroed and aligned to 128 bytes, is in three parts: its head, whose cells begin at an offset;
  // slots for larger posts; a ring of bytes for posts beyond a slot.
  static constexpr size_t kCellsOffset = (kLanes + 2) * kCellBytes;  // behind lanes' barriers, the accesses, the end
  static constexpr size_t kHeadBytes = kCellsOffset + (1 + kDepth) * kCellBytes;
  static constexpr size_t kSlotsBytes = kDepth * whole_lines(Cells::slot_bytes);

  BasicPostBoard() = default;
  // memory[r]: the head of rank r, mapped here. ring_bytes: equal on all ranks.
  BasicPostBoard(std::vector<std::byte*> memory, int rank, size_t ring_bytes)
      : memory_(std::move(memory)), rank_(rank) {
    for (std::byte* start : memory_) others_.push_back({{start + kCellsOffset, {ring_bytes}, kCellsOffset}});
    if (!others_.empty()) own_.emplace(others_[static_cast<size_t>(rank)].ring);
  }

  // A rank's other parts, before the first post that lies there.
  void lay_slots(int rank, std::byte* slots) {
    others_[static_cast<size_t>(rank)].ring.lay_slots(slots);
    if (rank == rank_) own_->ring().lay_slots(slots);
  }
  void lay_ring(int rank, std::byte* ring) {
    others_[static_cast<size_t>(rank)].ring.lay_ring(ring);
    if (rank == rank_) own_->ring().lay_ring(ring);
  }
  // The most bytes of a post that lies beside its flag, and of one in a slot.
  static constexpr size_t kSmallBytes = Cell<uint64_t>::kSmallBytes;
  static constexpr size_t kSlotBytes = Cells::slot_bytes;

  bool attached() const { return !memory_.empty(); }

  // --- posting: make_room() unless has_room(), begin(), fill, publish() as often as more is filled, the last time with
  // last = true. Whether a post of that many bytes of this rank finds room, as far as it is known.
  bool has_room(size_t bytes) const { return own_->fits(bytes); }
  struct Room {
    Sight sight = Sight::kNothing;
    int rank = -1;  // that is waited for, or whose memory is corrupt
  };
  // kThere: there is room. Else a rank may still be reading what lies there.
  Room make_room(size_t bytes) {
    if (heard_ < number_ && all_posted(number_).sight == Sight::kThere) heard_ = number_;
    while (true) {
      if (heard_ > 0) own_->free(heard_ - 1);
      if (has_room(bytes)) return {Sight::kThere, -1};
      if (const Room next = all_posted(heard_ + 1); next.sight != Sight::kThere) return next;
      ++heard_;
    }
  }
  // bytes: of the payload of each rank in this round, at most kPostBytes; the same on all ranks. Returns the place for
  // the own one. Requires has_room().
  std::byte* begin(uint64_t fingerprint, std::span<const size_t> bytes) {
    ++number_;
    for (size_t rank = 0; rank < bytes.size(); ++rank) {
      Other& other = others_[rank];
      if (other.ring.in_ring(bytes[rank])) other.begin = other.ring.take_room(other.end, bytes[rank]);
    }
    std::byte* place = own_->reserve(bytes[static_cast<size_t>(rank_)]);
    own_->tag() = fingerprint;
    return place;
  }
  void publish(uint32_t ready, bool last) { own_->publish(ready, last); }

  // --- looking, after begin()
  struct Look {
    Sight sight = Sight::kNothing;
    uint32_t ready = 0;        // bytes
    uint64_t fingerprint = 0;  // of a post
  };
  // What `rank` has posted in this round. Cost while there is nothing: one load.
  Look look(int rank) const {
    const auto& ring = other(rank).ring;
    const auto look = ring.look(number_);
    if (look.sight != Sight::kThere) return {look.sight, 0, 0};
    return {Sight::kThere, look.ready(), ring.tag(number_)};
  }
  // bytes: as in begin().
  const std::byte* payload_of(int rank, size_t bytes) const {
    return other(rank).ring.payload(number_, bytes, other(rank).begin);
  }
  // look() has found the posts of all other ranks in this round.
  void all_seen() { heard_ = number_; }

  // --- barriers of a lane. Numbers only grow; 0 at first.
  void arrive(uint32_t lane, uint64_t number) { arrival(rank_, lane).store(number, Orders::kArrive); }
  uint64_t arrived(int rank, uint32_t lane) const { return arrival(rank, lane).load(Orders::kSeeArrival); }

  // --- accesses of this rank to buffers of others, one at a time, a slice long: enter(), closed() of each owner,
  // touch, closed() once more, leave(). Where closed() is true the buffers must not be touched, or what was read is
  // worthless.
  void enter() { line(rank_, kLanes).store(++accesses_, Orders::kEnter); }
  void leave() { line(rank_, kLanes).store(++accesses_, Orders::kLeave); }
  bool closed(int rank) const { return line(rank, kLanes + 1).load(Orders::kEnter) != 0; }
  // This rank's buffers are closed to the others for good. Those who were in an access by then, as access() tells, may
  // be in it still.
  void close() { line(rank_, kLanes + 1).store(1, Orders::kClose); }
  // Number of a rank's accesses, entered and left: odd while it is in one. One number stays for one access only.
  uint64_t access(int rank) const { return line(rank, kLanes).load(Orders::kSeeAccess); }

 private:
  // A rank's posts, as the others see them.
  struct Other {
    CellRing<Cells, Orders> ring;
    uint64_t begin = 0, end = 0;  // of its last post in the ring of bytes
  };
  const Other& other(int rank) const { return others_[static_cast<size_t>(rank)]; }

  // Whether all others have posted in that round, of the last kDepth: some may be ahead of it.
  Room all_posted(uint64_t number) const {
    for (int rank = 0; rank < static_cast<int>(others_.size()); ++rank) {
      if (rank == rank_) continue;
      const Sight sight = other(rank).ring.look_behind(number);
      if (sight != Sight::kThere) return {sight, rank};
    }
    return {Sight::kThere, -1};
  }

  std::atomic<uint64_t>& arrival(int rank, uint32_t lane) const { return line(rank, lane); }
  std::atomic<uint64_t>& line(int rank, size_t index) const {
    return *reinterpret_cast<std::atomic<uint64_t>*>(memory_[static_cast<size_t>(rank)] + index * kCellBytes);
  }

  std::vector<std::byte*> memory_;
  std::vector<Other> others_;  // by rank, the own one with them
  std::optional<CellWriter<Cells, Orders>> own_;
  int rank_ = 0;
  uint64_t number_ = 0;    // of the round
  uint64_t heard_ = 0;     // a round in which all others are known to have posted
  uint64_t accesses_ = 0;  // entered and left
};

using PostBoard = BasicPostBoard<BoardOrders>;

}  // namespace rondo
