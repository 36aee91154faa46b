#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace rondo {

// The one channel between ranks that share memory, be they processes or threads: a ring of numbered cells with one
// writer and one reader (links, streams) or several (boards of posts).
//
//   [taken][cell 0 .. depth-1] [slot 0 .. depth-1]     which begin on a page
//
// A piece is announced by the flag of its cell: its number and how many of its bytes are there. A small payload lies
// beside the flag, so that one or two cache lines move; a larger one in the cell's slot (links), or where its face
// keeps it (boards, streams). Pages are touched as bytes reach them.
//
// Everything in this memory may hold anything at any time: the peer can write there. So each number is read once, and
// used only if it is the one expected.

inline constexpr size_t kLineBytes = 64;
inline constexpr size_t kCellBytes = 2 * kLineBytes;  // processors fetch lines in pairs

constexpr size_t whole_lines(size_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes; }

// The orderings that all faces of the ring rest on. Tests weaken each in turn and expect the thread sanitizer to
// object.
//
//   publish pairs with observe: a rank that sees the flag sees the piece. The writer's earlier reads are over then, so
//   what it had read may be written over.
//   free pairs with reuse: a piece was read before its place is written again.
//   end pairs with see_end: what a side wrote before its end is seen where the end is.
//
// A rank stores with kPublishLast, kFree or kEnd and then reads the doorbell's flag. A rank that is about to sleep sets
// that flag and then reads what those stores show. One of the two must see the other's store, else the sleeper is not
// woken. Likewise, where two ranks publish and then observe, one at least must see the other's piece. Only sequential
// consistency of stores and loads gives that; tests/engine/last_look_test weakens each.
struct CellOrders {
  static constexpr std::memory_order kPublish = std::memory_order_release;
  static constexpr std::memory_order kPublishLast = std::memory_order_seq_cst;
  static constexpr std::memory_order kObserve = std::memory_order_seq_cst;
  static constexpr std::memory_order kFree = std::memory_order_seq_cst;
  static constexpr std::memory_order kReuse = std::memory_order_seq_cst;
  static constexpr std::memory_order kEnd = std::memory_order_seq_cst;
  static constexpr std::memory_order kSeeEnd = std::memory_order_seq_cst;
};

// Two lines, beginning with the flag. Tag: what a face compares before it uses a byte of the piece.
template <typename Tag>
struct alignas(kCellBytes) Cell {
  static constexpr size_t kSmallBytes = kCellBytes - sizeof(uint64_t) - (std::is_empty_v<Tag> ? 0 : sizeof(Tag));
  std::atomic<uint64_t> flag;  // (number of the piece, from 1 on, modulo 2^32) << 32 | what its face says of it
  [[no_unique_address]] Tag tag;
  std::byte small[kSmallBytes];
};

constexpr uint64_t cell_flag(uint64_t number, uint32_t ready) { return (number << 32) | ready; }

// What is seen of a number that the other side stores.
enum class Sight : uint8_t { kNothing, kThere, kCorrupt };

// Kind, of every ring below, says
//   Tag;
//   depth: pieces under way, at least 2;
//   slot_bytes: of the largest payload in a slot, 0: no slots.

// Offsets from the beginning of a ring that begins `before` bytes behind a page's beginning.
template <typename Kind>
struct CellLayout {
  constexpr explicit CellLayout(const Kind& kind, size_t before) {
    constexpr size_t kPage = 4096;
    const auto on_page = [before](size_t size) { return (before + size + kPage - 1) / kPage * kPage - before; };
    slots = on_page(kCells + kind.depth * kCellBytes);
    bytes = on_page(slots + kind.depth * whole_lines(kind.slot_bytes));
  }
  static constexpr size_t kCells = kCellBytes;  // before them lies `taken`
  size_t slots = 0, bytes = 0;
};

// A ring in this process's memory. Numbers are the caller's.
template <typename Kind, typename Orders>
class CellRing {
 public:
  using Tag = typename Kind::Tag;

  // memory: zeroed before the first side was made; CellLayout(kind, before).bytes.
  CellRing(std::byte* memory, const Kind& kind, size_t before) : memory_(memory), kind_(kind) {
    slots_ = memory + CellLayout<Kind>(kind, before).slots;
  }

  const Kind& kind() const { return kind_; }
  Tag& tag(uint64_t number) const { return cell(number).tag; }
  std::atomic<uint64_t>& flag(uint64_t number) const { return cell(number).flag; }
  // Pieces that the reader needs no more; only grows.
  std::atomic<uint64_t>& taken() const { return *reinterpret_cast<std::atomic<uint64_t>*>(memory_); }

  // Shows that `ready` bytes of the piece are there, or what else its face says so; last: no more of what the caller
  // has to show follows at once.
  void publish(uint64_t number, uint32_t ready, bool last) const {
    flag(number).store(cell_flag(number, ready), last ? Orders::kPublishLast : Orders::kPublish);
  }

  // What one look has seen. flag: as it was loaded, so that the bytes and the number belong together.
  struct Look {
    Sight sight = Sight::kNothing;
    uint64_t flag = 0;
    uint32_t ready() const { return static_cast<uint32_t>(flag); }  // as publish() was told
  };
  // Whether the piece is there, at least in part. Cost while it is not: one load.
  Look look(uint64_t number) const {
    const uint64_t seen = flag(number).load(Orders::kObserve);
    if (shown(seen) == static_cast<uint32_t>(number)) return {Sight::kThere, seen};
    return {shown(seen) == before(number) ? Sight::kNothing : Sight::kCorrupt, seen};
  }
  // The same as look() where the writer may have gone on, at most once around.
  Sight look_behind(uint64_t number) const {
    const Look look_at = look(number);
    return shown(look_at.flag) == static_cast<uint32_t>(number + kind_.depth) ? Sight::kThere : look_at.sight;
  }

  // Where the payload of a piece lies: beside its flag if it is small, else in its slot.
  std::byte* payload(uint64_t number, size_t bytes) const {
    if (bytes <= Cell<Tag>::kSmallBytes) return cell(number).small;
    return slots_ + number % kind_.depth * whole_lines(kind_.slot_bytes);
  }

 private:
  Cell<Tag>& cell(uint64_t number) const {
    return reinterpret_cast<Cell<Tag>*>(memory_ + CellLayout<Kind>::kCells)[number % kind_.depth];
  }
  static uint32_t shown(uint64_t flag) { return static_cast<uint32_t>(flag >> 32); }
  // What the cell of a piece that is not there yet shows: the piece before it, or nothing.
  uint32_t before(uint64_t number) const {
    return number <= kind_.depth ? 0 : static_cast<uint32_t>(number - kind_.depth);
  }

  std::byte* memory_;
  std::byte* slots_ = nullptr;
  Kind kind_;
};

// The writer's side. One thread at a time.
template <typename Kind, typename Orders>
class CellWriter {
 public:
  explicit CellWriter(const CellRing<Kind, Orders>& ring) : ring_(ring) {}

  uint64_t number() const { return number_; }  // of the last piece reserved
  uint64_t taken() const { return taken_; }    // pieces that are needed no more, as far as is known

  // Whether so many more pieces find a cell.
  bool fits(uint64_t pieces = 1) const { return number_ - taken_ + pieces <= ring_.kind().depth; }
  // Where the next piece will lie.
  std::byte* place(size_t bytes) const { return ring_.payload(number_ + 1, bytes); }
  // Takes that place, to be filled and published. Requires fits().
  std::byte* reserve(size_t bytes) { return ring_.payload(++number_, bytes); }
  // The tag of the piece that was reserved last.
  typename Kind::Tag& tag() const { return ring_.tag(number_); }
  void publish(uint32_t ready, bool last) const { ring_.publish(number_, ready, last); }

  struct Freed {
    Sight sight = Sight::kNothing;
    uint64_t number = 0;
  };
  // Looks for pieces that a single reader has freed.
  Freed look_at_taken() {
    const uint64_t number = ring_.taken().load(Orders::kReuse);
    if (number == taken_) return {};
    if (number < taken_ || number > number_) return {Sight::kCorrupt, number};
    taken_ = number;
    return {Sight::kThere, number};
  }

 private:
  CellRing<Kind, Orders> ring_;
  uint64_t number_ = 0;
  uint64_t taken_ = 0;
};

// A single reader's side. One thread at a time.
template <typename Kind, typename Orders>
class CellReader {
 public:
  explicit CellReader(const CellRing<Kind, Orders>& ring) : ring_(ring) {}

  uint64_t number() const { return number_; }  // pieces found
  // look() and tag() are of the next piece.
  typename CellRing<Kind, Orders>::Look look() const { return ring_.look(number_ + 1); }
  const typename Kind::Tag& tag() const { return ring_.tag(number_ + 1); }
  // Goes on behind it. Returns its payload, of so many bytes, which stays until release().
  const std::byte* take(size_t bytes) { return ring_.payload(++number_, bytes); }
  // Gives the memory of all pieces up to this one back.
  void release(uint64_t number) const { ring_.taken().store(number, Orders::kFree); }

 private:
  CellRing<Kind, Orders> ring_;
  uint64_t number_ = 0;
};

}  // namespace rondo
