#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rondo {

// The orderings that a board rests on: two of posts, two of barriers, four of accesses. Tests weaken each in turn:
// the thread sanitizer objects, or (kEnter, kClose) both sides miss each other.
//   publish pairs with observe: a rank that sees a post's flag sees the post whole; and what its writer had read before
//   (posts of the round before) is read when the flag is seen, so that those may be written over.
// The last flag of a post and the look at another's are sequentially consistent: a doorbell's flag is read behind the
// one, and of two ranks that post and then look, one at least sees the other's post.
struct BoardOrders {
  static constexpr std::memory_order kPublish = std::memory_order_release;
  static constexpr std::memory_order kPublishLast = std::memory_order_seq_cst;
  static constexpr std::memory_order kObserve = std::memory_order_seq_cst;
  // The same for barriers: a rank that sees an arrival sees what was done before it.
  static constexpr std::memory_order kArrive = std::memory_order_seq_cst;
  static constexpr std::memory_order kSeeArrival = std::memory_order_acquire;
  // Accesses and closing: each side stores its own word and then reads the other's, so one of them at least sees the
  // other's. A word that says "left" releases what was touched to the owner, who acquires it.
  static constexpr std::memory_order kEnter = std::memory_order_seq_cst;
  static constexpr std::memory_order kLeave = std::memory_order_release;
  static constexpr std::memory_order kClose = std::memory_order_seq_cst;
  static constexpr std::memory_order kSeeAccess = std::memory_order_seq_cst;
};

// Memory in which every rank of an island posts what all others may read: two posts a rank, used in turn. A post is a
// flag, a fingerprint and up to kPostBytes of payload; a small payload lies beside the flag, so that one or two cache
// lines move. A large one lies in a ring of memory, behind the last: all ranks know the lengths of all posts. A ring
// beyond a core's cache is faster than two places, whose lines the reader's cache holds (docs/tuning.md, "One shot").
// A rank posts round k once it has seen all others' posts of round k - 1 and read what it needs of them.
//
// Beside the posts every rank has a number for each lane, which says in which barrier of a plan over windows it is; and
// two words by which it takes its own buffers out of the others' reach after a failure (GracePeriod).
//
// Whatever another rank writes may be anything at any time: its flag is read once and only believed if it is the number
// expected. One thread at a time.
template <typename Orders>
class BasicPostBoard {
 public:
  static constexpr size_t kPostBytes = 64 * 1024;
  static constexpr size_t kBesideFlag = 112;
  static constexpr size_t kHeadBytes = 128;        // two lines: processors fetch them in pairs
  static constexpr size_t kSmallBytes = 4 * 1024;  // larger payloads lie in the ring
  static constexpr size_t kSlotBytes = kHeadBytes + kSmallBytes;
  static constexpr size_t kLanes = 16;
  static constexpr size_t kLines = kLanes + 2;  // a line each: the lanes' barriers, the accesses, the end
  static constexpr size_t kRingOffset = 12 * 1024;
  static_assert(kRingOffset >= 2 * kSlotBytes + kLines * kHeadBytes);
  static constexpr size_t kRingBytes = 2 * 1024 * 1024;
  // Two posts in a row never overlap. For many ranks: the memory of a rank grows with their number.
  static constexpr size_t kFewestRingBytes = 4 * kPostBytes;
  // Of a rank: zeroed, aligned to 128 bytes.
  static constexpr size_t bytes(size_t ring_bytes) { return kRingOffset + ring_bytes; }
  static constexpr size_t kBytes = bytes(kRingBytes);

  BasicPostBoard() = default;
  // memory[r]: rank r's, mapped here. ring_bytes: equal on all ranks.
  BasicPostBoard(std::vector<std::byte*> memory, int rank, size_t ring_bytes = kRingBytes)
      : memory_(std::move(memory)), rings_(memory_.size()), ring_bytes_(ring_bytes), rank_(rank) {}

  bool attached() const { return !memory_.empty(); }

  // --- posting: begin(), fill, publish() as often as more is filled, the last time with last = true.
  // bytes: of the payload of each rank in this round, at most kPostBytes; the same on all ranks. Returns the place for
  // the own one.
  std::byte* begin(uint64_t fingerprint, std::span<const size_t> bytes) {
    ++number_;
    for (size_t rank = 0; rank < bytes.size(); ++rank) {
      if (bytes[rank] > kSmallBytes) take_room(rings_[rank], bytes[rank]);
    }
    head_of(rank_).fingerprint = fingerprint;
    return payload(rank_, bytes[static_cast<size_t>(rank_)]);
  }
  void publish(uint32_t ready, bool last) {
    const uint64_t flag = (number_ << 32) | ready;
    head_of(rank_).flag.store(flag, last ? Orders::kPublishLast : Orders::kPublish);
  }

  // --- looking, after begin()
  enum class Sight : uint8_t { kNothing, kPost, kCorrupt };
  struct Look {
    Sight sight = Sight::kNothing;
    uint32_t ready = 0;        // bytes
    uint64_t fingerprint = 0;  // of a post
  };
  // What `rank` has posted in this round. Cost while there is nothing: one load.
  Look look(int rank) const {
    const Head& head = head_of(rank);
    const uint64_t flag = head.flag.load(Orders::kObserve);
    const uint32_t number = static_cast<uint32_t>(flag >> 32);
    if (number == static_cast<uint32_t>(number_)) return {Sight::kPost, static_cast<uint32_t>(flag), head.fingerprint};
    // The place still shows its last post, or nothing.
    const bool before = number == static_cast<uint32_t>(number_ < 2 ? 0 : number_ - 2);
    return {before ? Sight::kNothing : Sight::kCorrupt, 0, 0};
  }
  // bytes: as in begin().
  const std::byte* payload_of(int rank, size_t bytes) const { return payload(rank, bytes); }

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
  struct Head {
    std::atomic<uint64_t> flag;  // number of the round (from 1, modulo 2^32) << 32 | bytes ready
    uint64_t fingerprint;
  };
  static_assert(sizeof(Head) + kBesideFlag == kHeadBytes);

  // Where a rank's payload of this round begins, and the next may begin.
  struct RingPlace {
    size_t begin = 0, next = 0;
  };
  void take_room(RingPlace& ring, size_t bytes) const {
    ring.begin = ring.next + bytes <= ring_bytes_ ? ring.next : 0;
    ring.next = ring.begin + (bytes + 63) / 64 * 64;
  }
  std::byte* payload(int rank, size_t bytes) const {
    const auto index = static_cast<size_t>(rank);
    if (bytes > kSmallBytes) return memory_[index] + kRingOffset + rings_[index].begin;
    return place(rank) + (bytes <= kBesideFlag ? sizeof(Head) : kHeadBytes);
  }
  std::byte* place(int rank) const { return memory_[static_cast<size_t>(rank)] + (number_ & 1) * kSlotBytes; }
  std::atomic<uint64_t>& arrival(int rank, uint32_t lane) const { return line(rank, lane); }
  std::atomic<uint64_t>& line(int rank, size_t index) const {
    std::byte* lines = memory_[static_cast<size_t>(rank)] + 2 * kSlotBytes;
    return *reinterpret_cast<std::atomic<uint64_t>*>(lines + index * kHeadBytes);
  }
  Head& head_of(int rank) const { return *reinterpret_cast<Head*>(place(rank)); }

  std::vector<std::byte*> memory_;
  std::vector<RingPlace> rings_;  // by rank
  size_t ring_bytes_ = 0;
  int rank_ = 0;
  uint64_t number_ = 0;    // of the round
  uint64_t accesses_ = 0;  // entered and left
};

using PostBoard = BasicPostBoard<BoardOrders>;

}  // namespace rondo
