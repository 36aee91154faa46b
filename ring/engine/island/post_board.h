#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ring/plan/layout.h"
#include "transport/island/cell_ring.h"

namespace rondo {

// Memory orders of a board besides those of its cells: two of barriers, four of accesses. Tests weaken each in
// turn: either the thread sanitizer objects, or (kEnter, kClose) both sides miss each other.
struct BoardOrders : CellOrders {
  // A rank that sees an arrival sees what was done before it. Arriving is a store before the look at a
  // doorbell; a sleeper arms its doorbell before it looks at arrivals (CellOrders). So an arrival wakes it, or
  // is seen.
  static constexpr std::memory_order kArrive = std::memory_order_seq_cst;
  static constexpr std::memory_order kSeeArrival = std::memory_order_seq_cst;
  // Accesses against closing: each side stores its own number, then loads the other's, so at least one of them
  // sees the other. An even number (left) releases what was touched to the owner, who acquires it.
  static constexpr std::memory_order kEnter = std::memory_order_seq_cst;
  static constexpr std::memory_order kLeave = std::memory_order_release;
  static constexpr std::memory_order kClose = std::memory_order_seq_cst;
  static constexpr std::memory_order kSeeAccess = std::memory_order_seq_cst;
};

// Memory in which every rank of an island posts data that all others may read, round after round. All ranks
// post once in each round, and know the lengths of all posts, so they know where each post lies.
//
// Layout: each rank has an area of numbered cells (transport/island/cell_ring.h), and slots for posts that are
// too long to lie beside a flag. For kDepth rounds a rank posts in its own area, for the next kDepth rounds in
// that of the rank behind it, and so on. So it writes where it has read before, into lines that its cache
// holds; its own last post would have to be fetched from the readers' caches. Each part of the slots counts the
// rounds that use it, so that rounds of other lengths in between do not give a rank the same slots twice.
//
// Posts that go one way, from or to a root, lie in the rank's own area, and long ones in a ring of bytes if the
// board has rings: when a line is written again it has left the readers' caches (docs/tuning.md, "One shot").
//
// Reuse: a rank posts round k after it has read what it needs of round k - 1. So a post of round k says that
// its writer needs no earlier post, and readers store nothing else. A place is written again when all ranks
// have posted in a later round than the one it held.
//
// Beside the posts every rank has a number: the barrier of a plan over windows that it has reached. Two more numbers
// take its buffers out of the others' reach after a failure (GracePeriod).
//
// Other ranks can write anything into this memory at any time. So a number is read once, and compared before it
// is used. One thread at a time, per process.
template <typename Orders>
class BasicPostBoard {
 public:
  // Posts that a board holds of each rank. A rank that takes nothing from the others may be one round less
  // ahead of them.
  static constexpr uint32_t kDepth = 8;
  // Posts up to here have slots of their own, which touch few pages. Where posts go one way these are as fast
  // as the ring.
  static constexpr size_t kShortBytes = 4 * 1024;
  // Holds all posts that can be under way, and is larger than a core's cache.
  static constexpr size_t kRingBytes = 2 * 1024 * 1024;
  static_assert((kDepth + 1) * kPostBytes <= kRingBytes);

  struct Cells {
    using Tag = uint64_t;  // fingerprint of the operation
    static constexpr uint32_t depth = kDepth;
    static constexpr size_t slot_bytes = 0;
  };

  // The memory of an area, zeroed and aligned to 128 bytes: its head, whose cells begin at an offset, and parts for
  // posts that do not lie beside a flag.
  static constexpr size_t kCellsOffset = 3 * kCellBytes;  // behind the lines of Line
  static constexpr size_t kHeadBytes = kCellsOffset + (1 + kDepth) * kCellBytes;
  enum class Part : uint8_t { kShortSlots, kLongSlots, kRing };
  static constexpr int kParts = 3;
  static constexpr size_t bytes_of(Part part) { return part == Part::kRing ? kRingBytes : kDepth * slot_bytes(part); }
  // Who reads the posts of a round: all ranks, or those on the way from or to a root. The same on all ranks.
  enum class Flow : uint8_t { kAllWays, kOneWay };
  // The part for a post that is too long to lie beside its flag.
  static constexpr Part part_of(size_t bytes, Flow flow, bool has_rings) {
    if (bytes <= kShortBytes) return Part::kShortSlots;
    return flow == Flow::kOneWay && has_rings ? Part::kRing : Part::kLongSlots;
  }
  // The longest post that lies beside its flag: flag, fingerprint and data move in two cache lines. A call of 8
  // bytes is such a post.
  static constexpr size_t kSmallBytes = Cell<uint64_t>::kSmallBytes;

  BasicPostBoard() = default;
  // memory[r]: the head of rank r, mapped here; it must outlive the board. has_rings: equal on all ranks.
  BasicPostBoard(std::vector<std::byte*> memory, int rank, bool has_rings)
      : memory_(std::move(memory)), spaces_(memory_.size()), has_rings_(has_rings), rank_(rank) {
    for (std::byte* start : memory_) areas_.push_back({start + kCellsOffset, {}, kCellsOffset});
  }

  // Tells where a part of a rank's area is mapped, before the first post that lies there.
  void lay(Part part, int rank, std::byte* memory) { spaces_[static_cast<size_t>(rank)][part] = memory; }

  bool attached() const { return !memory_.empty(); }

  // Posting, in this order: make_room() unless has_room(); begin(); fill the place; publish() as often as more
  // is filled, the last time with last = true.
  //
  // Whether the next post finds room, as far as this rank knows.
  bool has_room() const { return number_ - unneeded() < kDepth; }
  struct Room {
    Sight sight = Sight::kNothing;
    int rank = -1;  // that is waited for, or whose memory is corrupt
  };
  // Looks at the others' posts to learn how far they are. kThere: there is room. Else a rank may still read
  // what lies in the next place.
  Room make_room() {
    if (heard_ < number_ && all_posted(number_).sight == Sight::kThere) heard_ = number_;
    while (!has_room()) {
      if (const Room next = all_posted(heard_ + 1); next.sight != Sight::kThere) return next;
      ++heard_;
    }
    return {Sight::kThere, -1};
  }
  // Begins this rank's post of the next round. bytes: the length of each rank's post, at most kPostBytes; the
  // same on all ranks. Returns where the data goes. Requires has_room().
  std::byte* begin(uint64_t fingerprint, std::span<const size_t> bytes, Flow flow) {
    flow_ = flow;
    ++number_;
    bool lies[kParts] = {};
    for (size_t rank = 0; rank < bytes.size(); ++rank) {
      if (bytes[rank] <= kSmallBytes) continue;
      const Part part = part_of(bytes[rank], flow, has_rings_);
      lies[static_cast<size_t>(part)] = true;
      if (part == Part::kRing) spaces_[rank].take(bytes[rank]);
    }
    for (size_t part = 0; part < kParts; ++part) turns_[part] += lies[part] ? 1 : 0;
    areas_[area_of(rank_, number_)].tag(number_) = fingerprint;
    return place(rank_, bytes[static_cast<size_t>(rank_)]);
  }
  // Shows the first `ready` bytes. The flag's store releases them and the fingerprint to a rank that sees it.
  void publish(uint32_t ready, bool last) { areas_[area_of(rank_, number_)].publish(number_, ready, last); }

  // --- looking, after begin()
  struct Look {
    Sight sight = Sight::kNothing;
    uint32_t ready = 0;        // bytes
    uint64_t fingerprint = 0;  // of a post
  };
  // What `rank` has posted in this round, after begin(). Costs one load while there is nothing.
  Look look(int rank) const {
    const auto& area = areas_[area_of(rank, number_)];
    const auto look = area.look(number_);
    if (look.sight != Sight::kThere) return {look.sight, 0, 0};
    return {Sight::kThere, look.ready(), area.tag(number_)};
  }
  // bytes: of the whole payload of that rank in this round.
  const std::byte* payload_of(int rank, size_t bytes) const { return place(rank, bytes); }
  // look() has found the posts of all other ranks in this round: they need nothing of earlier rounds.
  void all_seen() { heard_ = number_; }

  // Barriers. Numbers start from 0 and only grow.
  void arrive(uint64_t number) { line(rank_, Line::kArrival).store(number, Orders::kArrive); }
  uint64_t arrived(int rank) const { return line(rank, Line::kArrival).load(Orders::kSeeArrival); }

  // Accesses of this rank to buffers of others: one at a time, as long as a slice. In this order: enter(),
  // closed() of each owner, touch, closed() once more, leave(). Where closed() is true the buffers must not be
  // touched, or what was read is worthless.
  void enter() { line(rank_, Line::kAccess).store(++accesses_, Orders::kEnter); }
  void leave() { line(rank_, Line::kAccess).store(++accesses_, Orders::kLeave); }
  bool closed(int rank) const { return line(rank, Line::kClosed).load(Orders::kEnter) != 0; }
  // An access for as long as this lives, also if something is thrown. One that was never left would hold up the
  // owners of the buffers for good.
  class Access {
   public:
    explicit Access(BasicPostBoard& board) : board_(board) { board_.enter(); }
    ~Access() { board_.leave(); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    BasicPostBoard& board_;
  };
  // Closes this rank's buffers to the others for good. Ranks that were in an access by then may be in it still;
  // access() tells which.
  void close() { line(rank_, Line::kClosed).store(1, Orders::kClose); }
  // How often a rank has entered or left an access: odd while it is in one. A number never comes back, so a
  // changed number means that the access is over.
  uint64_t access(int rank) const { return line(rank, Line::kAccess).load(Orders::kSeeAccess); }

 private:
  // Each slot has a page more than the longest post, so that no two share one, and a cell more, so that the
  // beginnings of slots do not share sets of a cache (docs/tuning.md, "One shot").
  static constexpr size_t slot_bytes(Part part) {
    return (part == Part::kShortSlots ? kShortBytes : kPostBytes) + 4 * 1024 + kCellBytes;
  }
  // The parts of a rank's area.
  struct Space {
    std::byte* parts[kParts] = {};
    uint64_t begin = 0, end = 0;  // of the rank's last post in its ring
    std::byte*& operator[](Part part) { return parts[static_cast<size_t>(part)]; }
    std::byte* operator[](Part part) const { return parts[static_cast<size_t>(part)]; }
    // Takes the next place of the ring. A post begins at a cache line; one that would reach beyond the end
    // begins at the start. All ranks take for all posts, so they agree on every place.
    void take(size_t bytes) {
      const uint64_t to_end = kRingBytes - end % kRingBytes;
      begin = bytes <= to_end ? end : end + to_end;
      end = begin + whole_lines(bytes);
    }
  };

  // The area in which a rank posts in a round, whatever it posts: ranks that make different calls look at each
  // other's posts, and notice. For a part's slots the same holds of its turns.
  size_t area_of(int rank, uint64_t number) const {
    return (static_cast<uint64_t>(rank) + number / kDepth) % areas_.size();
  }
  // Where a rank's post of this round lies.
  std::byte* place(int rank, size_t bytes) const {
    if (bytes <= kSmallBytes) return areas_[area_of(rank, number_)].payload(number_, bytes);
    const size_t own = static_cast<size_t>(rank);
    const Part part = part_of(bytes, flow_, has_rings_);
    if (part == Part::kRing) return spaces_[own][part] + spaces_[own].begin % kRingBytes;
    const uint64_t turn = turns_[static_cast<size_t>(part)];
    return spaces_[flow_ == Flow::kAllWays ? area_of(rank, turn) : own][part] + turn % kDepth * slot_bytes(part);
  }
  // No rank needs posts of this round or of earlier ones any more.
  uint64_t unneeded() const { return heard_ > 0 ? heard_ - 1 : 0; }
  // Whether all others have posted in that round, one of the last kDepth. Some may be ahead of it, so a later
  // number in the same cell counts, too.
  Room all_posted(uint64_t number) const {
    for (int rank = 0; rank < static_cast<int>(areas_.size()); ++rank) {
      if (rank == rank_) continue;
      const Sight sight = areas_[area_of(rank, number)].look_behind(number);
      if (sight != Sight::kThere) return {sight, rank};
    }
    return {Sight::kThere, -1};
  }

  // Numbers of a rank, each in a cell of its own before those of its posts.
  enum class Line : uint8_t { kArrival, kAccess, kClosed };
  std::atomic<uint64_t>& line(int rank, Line which) const {
    return *reinterpret_cast<std::atomic<uint64_t>*>(memory_[static_cast<size_t>(rank)] +
                                                     static_cast<size_t>(which) * kCellBytes);
  }

  std::vector<std::byte*> memory_;
  std::vector<CellRing<Cells, Orders>> areas_;  // by rank
  std::vector<Space> spaces_;                   // by rank
  bool has_rings_ = false;
  Flow flow_ = Flow::kAllWays;  // of this round
  int rank_ = 0;
  uint64_t number_ = 0;          // of the round
  uint64_t heard_ = 0;           // a round in which all others are known to have posted
  uint64_t turns_[kParts] = {};  // rounds in which a post lies there
  uint64_t accesses_ = 0;        // entered and left
};

using PostBoard = BasicPostBoard<BoardOrders>;

}  // namespace rondo
