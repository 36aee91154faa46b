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

// The orderings that a board rests on besides those of its rings: two of barriers, four of accesses. Tests weaken each
// in turn: the thread sanitizer objects, or (kEnter, kClose) both sides miss each other.
struct BoardOrders : CellOrders {
  // A rank that sees an arrival sees what was done before it. A doorbell is looked at behind arriving, and armed before
  // arrivals are looked at (CellOrders).
  static constexpr std::memory_order kArrive = std::memory_order_seq_cst;
  static constexpr std::memory_order kSeeArrival = std::memory_order_seq_cst;
  // Accesses and closing: each side stores its own number and then reads the other's, so one of them at least sees
  // the other's. An even number (left) releases what was touched to the owner, who acquires it.
  static constexpr std::memory_order kEnter = std::memory_order_seq_cst;
  static constexpr std::memory_order kLeave = std::memory_order_release;
  static constexpr std::memory_order kClose = std::memory_order_seq_cst;
  static constexpr std::memory_order kSeeAccess = std::memory_order_seq_cst;
};

// Memory in which every rank of an island posts what all others may read, round after round: an area of each rank, of
// numbered cells (transport/island/cell_ring.h), and of slots for posts that do not lie beside a flag. Areas go from
// hand to hand: in kDepth rounds a rank posts in its own, in the next ones in that of the rank behind it, and so on. So
// it writes where it has read before, in lines that its cache holds, where its own last post would have to be taken
// back from its readers' caches. Slots count only the rounds of posts that lie in such ones, so that those of other
// lengths in between do not give one to the same rank twice. Posts that go one way alone, from or to a root, lie in the
// own area, and the long ones in a ring of bytes of the rank, if it has one: when a line is written again it has left
// the readers' caches (docs/tuning.md, "One shot").
//
// Every rank posts once a round, and all ranks know the lengths of all posts, and thereby where they are. A rank posts
// round k once it has read what it needs of round k - 1; so a post of round k says that its writer needs no earlier
// post any more, and no reader stores anything else.
//
// Beside the posts every rank has a number for each lane, which says in which barrier of a plan over windows it is; and
// two numbers by which it takes its own buffers out of the others' reach after a failure (GracePeriod).
//
// Whatever another rank writes may be anything at any time. One thread at a time.
template <typename Orders>
class BasicPostBoard {
 public:
  // Rounds that a rank which takes nothing from the others may be ahead of them, and one.
  static constexpr uint32_t kDepth = 8;
  static constexpr size_t kLanes = 16;
  // In slots of their own, since those touch few pages; where posts go one way they are as fast there as in the ring.
  static constexpr size_t kShortBytes = 4 * 1024;
  // Takes all posts under way, and is larger than a core's cache.
  static constexpr size_t kRingBytes = 2 * 1024 * 1024;
  static_assert((kDepth + 1) * kPostBytes <= kRingBytes);

  struct Cells {
    using Tag = uint64_t;  // fingerprint of the operation
    static constexpr uint32_t depth = kDepth;
    static constexpr size_t slot_bytes = 0;
  };

  // The memory of an area, zeroed and aligned to 128 bytes: its head, whose cells begin at an offset, and parts for
  // posts that do not lie beside a flag.
  static constexpr size_t kCellsOffset = (kLanes + 2) * kCellBytes;  // behind lanes' barriers, the accesses, the end
  static constexpr size_t kHeadBytes = kCellsOffset + (1 + kDepth) * kCellBytes;
  enum class Part : uint8_t { kShortSlots, kLongSlots, kRing };
  static constexpr int kParts = 3;
  static constexpr size_t bytes_of(Part part) { return part == Part::kRing ? kRingBytes : kDepth * slot_bytes(part); }
  // Who reads what is posted in a round; the same on all ranks.
  enum class Flow : uint8_t { kAllWays, kOneWay };
  // The part that holds a post that does not lie beside its flag.
  static constexpr Part part_of(size_t bytes, Flow flow, bool has_rings) {
    if (bytes <= kShortBytes) return Part::kShortSlots;
    return flow == Flow::kOneWay && has_rings ? Part::kRing : Part::kLongSlots;
  }
  // The most bytes of a post that lies beside its flag.
  static constexpr size_t kSmallBytes = Cell<uint64_t>::kSmallBytes;

  BasicPostBoard() = default;
  // memory[r]: the head of rank r, mapped here. has_rings: equal on all ranks.
  BasicPostBoard(std::vector<std::byte*> memory, int rank, bool has_rings)
      : memory_(std::move(memory)), spaces_(memory_.size()), has_rings_(has_rings), rank_(rank) {
    for (std::byte* start : memory_) areas_.push_back({start + kCellsOffset, {}, kCellsOffset});
  }

  // A part of a rank's area, before the first post that lies there.
  void lay(Part part, int rank, std::byte* memory) { spaces_[static_cast<size_t>(rank)][part] = memory; }

  bool attached() const { return !memory_.empty(); }

  // --- posting: make_room() unless has_room(), begin(), fill, publish() as often as more is filled, the last time with
  // last = true. Whether this rank's next post finds room, as far as it is known.
  bool has_room() const { return number_ - unneeded() < kDepth; }
  struct Room {
    Sight sight = Sight::kNothing;
    int rank = -1;  // that is waited for, or whose memory is corrupt
  };
  // kThere: there is room. Else a rank may still be reading what lies there.
  Room make_room() {
    if (heard_ < number_ && all_posted(number_).sight == Sight::kThere) heard_ = number_;
    while (!has_room()) {
      if (const Room next = all_posted(heard_ + 1); next.sight != Sight::kThere) return next;
      ++heard_;
    }
    return {Sight::kThere, -1};
  }
  // bytes: of the payload of each rank in this round, at most kPostBytes; the same on all ranks. Returns the place for
  // the own one. Requires has_room().
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
  void publish(uint32_t ready, bool last) { areas_[area_of(rank_, number_)].publish(number_, ready, last); }

  // --- looking, after begin()
  struct Look {
    Sight sight = Sight::kNothing;
    uint32_t ready = 0;        // bytes
    uint64_t fingerprint = 0;  // of a post
  };
  // What `rank` has posted in this round. Cost while there is nothing: one load.
  Look look(int rank) const {
    const auto& area = areas_[area_of(rank, number_)];
    const auto look = area.look(number_);
    if (look.sight != Sight::kThere) return {look.sight, 0, 0};
    return {Sight::kThere, look.ready(), area.tag(number_)};
  }
  // bytes: of the whole payload of that rank in this round.
  const std::byte* payload_of(int rank, size_t bytes) const { return place(rank, bytes); }
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
  // An access as long as it lives, whatever is thrown in it: one that was never left would hold up its owners for good.
  class Access {
   public:
    explicit Access(BasicPostBoard& board) : board_(board) { board_.enter(); }
    ~Access() { board_.leave(); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    BasicPostBoard& board_;
  };
  // This rank's buffers are closed to the others for good. Those who were in an access by then, as access() tells, may
  // be in it still.
  void close() { line(rank_, kLanes + 1).store(1, Orders::kClose); }
  // Number of a rank's accesses, entered and left: odd while it is in one. One number stays for one access only.
  uint64_t access(int rank) const { return line(rank, kLanes).load(Orders::kSeeAccess); }

 private:
  // A page more than the longest post, so that no two share one, and a cell more, so that their beginnings do not share
  // sets of a cache (docs/tuning.md, "One shot").
  static constexpr size_t slot_bytes(Part part) {
    return (part == Part::kShortSlots ? kShortBytes : kPostBytes) + 4 * 1024 + kCellBytes;
  }
  // The parts of a rank's area.
  struct Space {
    std::byte* parts[kParts] = {};
    uint64_t begin = 0, end = 0;  // of the rank's last post in its ring
    std::byte*& operator[](Part part) { return parts[static_cast<size_t>(part)]; }
    std::byte* operator[](Part part) const { return parts[static_cast<size_t>(part)]; }
    // Each post begins at a line; one that reached beyond the end of the ring begins at its start instead.
    void take(size_t bytes) {
      const uint64_t to_end = kRingBytes - end % kRingBytes;
      begin = bytes <= to_end ? end : end + to_end;
      end = begin + whole_lines(bytes);
    }
  };

  // Where a rank posts in that round, whatever it posts: so ranks that make different calls see each other's. Likewise,
  // of a turn, for a part's slots.
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
  // Up to this round nobody needs a post any more.
  uint64_t unneeded() const { return heard_ > 0 ? heard_ - 1 : 0; }
  // Whether all others have posted in that round, of the last kDepth: some may be ahead of it.
  Room all_posted(uint64_t number) const {
    for (int rank = 0; rank < static_cast<int>(areas_.size()); ++rank) {
      if (rank == rank_) continue;
      const Sight sight = areas_[area_of(rank, number)].look_behind(number);
      if (sight != Sight::kThere) return {sight, rank};
    }
    return {Sight::kThere, -1};
  }

  std::atomic<uint64_t>& arrival(int rank, uint32_t lane) const { return line(rank, lane); }
  std::atomic<uint64_t>& line(int rank, size_t index) const {
    return *reinterpret_cast<std::atomic<uint64_t>*>(memory_[static_cast<size_t>(rank)] + index * kCellBytes);
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
