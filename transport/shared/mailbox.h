#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/fabric.h"

namespace rondo {

// The memory of a link between two ranks of an island, mapped by both. Everything in it may hold anything at any time:
// the peer can write there. So each number is read once, compared, and only ever used if it is the one expected.
//
//   [end of the lower rank][end of the higher rank]   one line each
//   [freed][head 0 .. depth-1] [slot 0 .. depth-1]     lower to higher; slots begin on a page
//   [freed][head 0 .. depth-1] [slot 0 .. depth-1]     higher to lower
//
// A slice of up to kInlineBytes lies beside its flag: one cache line moves. Pages are touched as far as slices reach.

inline constexpr size_t kLineBytes = 64;
inline constexpr size_t kInlineBytes = 40;

struct alignas(kLineBytes) MailboxEnd {
  std::atomic<uint32_t> closed{0};  // the link of this end is gone; stored after its last slice
};

// The sender writes everything else and then `flag`; it may write again once `freed` says that the slice `depth`
// before this one is needed no more.
struct alignas(kLineBytes) SlotHead {
  std::atomic<uint64_t> flag{0};  // (number of the slice, from 1 on, modulo 2^32) << 32 | bytes
  uint64_t sequence = 0;
  uint64_t fingerprint = 0;
  std::byte small[kInlineBytes];
};
static_assert(sizeof(SlotHead) == kLineBytes);

struct alignas(2 * kLineBytes) Freed {  // two lines: processors fetch them in pairs
  std::atomic<uint64_t> slices{0};
};

constexpr uint64_t slot_flag(uint64_t number, uint32_t bytes) { return (number << 32) | bytes; }

// Where things are; offsets from the beginning of the memory.
struct MailboxLayout {
  explicit MailboxLayout(const LinkShape& link_shape) : shape(link_shape) {
    const auto up = [](size_t size, size_t to) { return (size + to - 1) / to * to; };
    constexpr size_t kPage = 4096;
    slot_stride = up(shape.slice_bytes, kLineBytes);
    heads = up(sizeof(Freed), kLineBytes);
    slots = up(heads + shape.depth * sizeof(SlotHead), kPage);
    first = up(2 * sizeof(MailboxEnd), sizeof(Freed));
    slots += kPage - first;  // so that they begin on a page of the memory
    second = first + up(slots + shape.depth * slot_stride, kPage);
    bytes = second + slots + shape.depth * slot_stride;
  }
  LinkShape shape;
  size_t slot_stride = 0;
  size_t heads = 0, slots = 0;   // within a direction
  size_t first = 0, second = 0;  // directions
  size_t bytes = 0;
};

// What a link may ask of memory: a frame of a peer is no reason to map more.
constexpr bool sane_shape(const LinkShape& shape) {
  return shape.depth >= 2 && shape.depth <= 65 && shape.slice_bytes <= (16u << 20);
}

// One direction of it, in this process.
class Mailbox {
 public:
  Mailbox(std::byte* direction, const MailboxLayout& layout) : direction_(direction), layout_(layout) {}
  std::atomic<uint64_t>& freed() const { return reinterpret_cast<Freed*>(direction_)->slices; }
  SlotHead& head(uint64_t slice) const {
    return reinterpret_cast<SlotHead*>(direction_ + layout_.heads)[slice % layout_.shape.depth];
  }
  std::byte* slot(uint64_t slice) const {
    return direction_ + layout_.slots + slice % layout_.shape.depth * layout_.slot_stride;
  }
  // Where the payload of a slice of that size is.
  std::byte* payload(uint64_t slice, uint32_t bytes) const {
    return bytes <= kInlineBytes ? head(slice).small : slot(slice);
  }

 private:
  std::byte* direction_;
  MailboxLayout layout_;
};

}  // namespace rondo
