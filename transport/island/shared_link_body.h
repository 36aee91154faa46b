#pragma once

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "kernels/cross_copy.h"
#include "ring/base/check.h"
#include "transport/island/shared_link.h"

namespace rondo {

// Cells of a link carry the tag of a slice; slots hold whole slices.
struct LinkCells {
  struct Tag {
    uint64_t sequence;
    uint64_t fingerprint;
  };
  uint32_t depth;
  size_t slot_bytes;
};

// The slices of a link through two rings of cells. Where the receiver gave no landing, the slice stays in its slot,
// lent until release(); otherwise it is copied on arrival and its slot is free at once. Orders: CellOrders, or what a
// test makes of them.
template <typename Orders>
class SharedLink final : public Link {
 public:
  SharedLink(ChannelEnd end, const LinkShape& shape)
      : shape_(shape), channel_(std::move(end), {shape.depth, shape.slice_bytes}), landings_(shape.depth) {}

  uint32_t depth() const override { return shape_.depth; }

  bool can_post() const override { return posted_ - released_ < shape_.depth; }
  void post(const SliceTag& tag, std::byte* landing) override {
    RONDO_CHECK(can_post() && tag.bytes <= shape_.slice_bytes, "no landing is free for the slice");
    landings_[posted_++ % shape_.depth] = {tag, landing, nullptr};
  }
  uint32_t unfilled() const override { return static_cast<uint32_t>(posted_ - filled()); }
  const std::byte* arrived() override {
    if (filled() == released_ && !accept()) return nullptr;
    return landings_[released_ % shape_.depth].payload;
  }
  uint32_t arrived_bytes() const override { return landings_[released_ % shape_.depth].tag.bytes; }
  void release() override {
    RONDO_CHECK(filled() > released_, "nothing has arrived");
    ++released_;
    free_slots();
  }

  bool can_send() const override { return room() || (look_at_freed() && room()); }
  std::byte* reserve(uint32_t bytes) override {
    RONDO_CHECK(can_send() && bytes <= shape_.slice_bytes, "no room for the slice");
    return reserved_ = channel_.out.place(bytes);
  }
  // The tag lies in the cell before publish() shows the slice; the bell comes last, since the peer looks when it is
  // rung.
  uint64_t commit(const SliceTag& tag) override {
    RONDO_CHECK(can_send() && tag.bytes <= shape_.slice_bytes, "no room for the slice");
    std::byte* const place = channel_.out.reserve(tag.bytes);
    if (place != reserved_) std::memcpy(place, reserved_, tag.bytes);  // it has become short enough for a cell
    channel_.out.tag() = {tag.sequence, tag.fingerprint};
    channel_.out.publish(tag.bytes, true);
    channel_.ring_bell();
    return sent();
  }
  uint64_t send(const SliceTag& tag, const std::byte* payload) override {
    std::byte* slot = reserve(tag.bytes);
    cross_copy(slot, payload, tag.bytes, channel_.stores());
    return commit(tag);
  }
  uint64_t sent() const override { return channel_.out.number(); }

  bool pump() override {
    bool moved = false;
    // One large copy a pass, so that the caller combines a slice while it is in cache.
    for (bool copied = false; !copied && accept(); moved = true) {
      const Landing& landing = landings_[(filled() - 1) % shape_.depth];
      copied = landing.memory != nullptr && landing.tag.bytes > kSmallCopy;
    }
    if (sent() != channel_.out.taken()) moved |= look_at_freed();
    if (!moved) moved = look_for_end();
    return moved;
  }
  Refused refused() const override { return mismatch_; }
  const Error* error() const override { return error_.ok() ? nullptr : &error_; }

 private:
  // Bytes. Larger slices are copied one a pass (pump()).
  static constexpr uint32_t kSmallCopy = 16 * 1024;

  struct Landing {
    SliceTag tag;
    std::byte* memory = nullptr;         // the caller's; null: the slot is lent
    const std::byte* payload = nullptr;  // once filled
  };

  // Slices that have come into their landings.
  uint64_t filled() const { return channel_.in.number(); }
  bool room() const { return channel_.out.fits(); }

  // The next slice, if it is there and has a landing: compared before a byte of it is used. Cost while there is none:
  // one load.
  bool accept() {
    if (filled() == posted_ || refused_) return false;
    const auto look = channel_.in.look();
    if (look.sight == Sight::kNothing) return false;
    if (look.sight == Sight::kCorrupt) {
      return corrupt(fmt::format("slice {} shows the number {:#x}", filled(), look.flag));
    }
    Landing& landing = landings_[filled() % shape_.depth];
    const LinkCells::Tag& tag = channel_.in.tag();
    const SliceTag got{tag.sequence, tag.fingerprint, look.ready()};
    if (!landing.tag.takes(got)) return refuse(got, landing.tag);
    if (got.fingerprint != landing.tag.fingerprint) mismatch_ = {got, landing.tag};
    landing.tag.bytes = got.bytes;
    // From here on only the caller's own numbers count.
    landing.payload = channel_.in.take(landing.tag.bytes);
    if (landing.memory == nullptr) return true;
    if (landing.tag.bytes > 0) std::memcpy(landing.memory, landing.payload, landing.tag.bytes);
    landing.payload = landing.memory;
    free_slots();
    return true;
  }

  // More bytes than a slice may have are no disagreement of the ranks but damaged memory.
  bool refuse(const SliceTag& got, const SliceTag& expected) {
    if (got.bytes > shape_.slice_bytes) {
      return corrupt(fmt::format("slice {} claims {} bytes of at most {}", filled(), got.bytes, shape_.slice_bytes));
    }
    refused_ = true;
    mismatch_ = {got, expected};
    error_ = {ErrorCode::kMismatch,
              fmt::format("{} sent a slice of operation {} (fingerprint {:016x}, {} bytes): operation {} (fingerprint "
                          "{:016x}, {} bytes) was expected",
                          channel_.peer_name(), got.sequence, got.fingerprint, got.bytes, expected.sequence,
                          expected.fingerprint, expected.bytes),
              {}};
    return false;
  }

  // The memory holds what no peer of ours writes: nothing is read from it any more.
  bool corrupt(const std::string& what) const {
    refused_ = true;
    error_ = channel_.corrupt(what);
    return false;
  }

  // Gives back the slots that are needed no more: of slices that were copied on arrival, and of those released.
  void free_slots() {
    const uint64_t before = freed_;
    while (freed_ < filled() && (freed_ < released_ || landings_[freed_ % shape_.depth].memory != nullptr)) ++freed_;
    if (freed_ == before) return;
    channel_.in.release(freed_);
    channel_.ring_bell();
  }

  // True if the peer has freed more of what was sent.
  bool look_at_freed() const {
    if (refused_) return false;
    const uint64_t before = channel_.out.taken();
    const auto freed = channel_.out.look_at_taken();
    if (freed.sight != Sight::kCorrupt) return freed.sight == Sight::kThere;
    return corrupt(fmt::format("of {} slices sent, {} then {} are freed", sent(), before, freed.number));
  }

  // What the peer wrote before it went is used first: the look at its end comes before the last look at the slots.
  bool look_for_end() {
    if (!error_.ok() || (filled() == posted_ && room()) || !channel_.peer_gone()) return false;
    if (accept() || look_at_freed()) return true;
    if (error_.ok()) error_ = {ErrorCode::kPeerLost, fmt::format("{} closed its link", channel_.peer_name()), {}};
    return false;
  }

  const LinkShape shape_;
  mutable SharedChannel<LinkCells, Orders> channel_;
  std::vector<Landing> landings_;
  // Where reserve() told the caller to write. A slice of at most Cell::kSmallBytes belongs beside its flag instead.
  std::byte* reserved_ = nullptr;
  // Receiving: posted >= filled >= released; filled >= freed.
  uint64_t posted_ = 0;
  uint64_t released_ = 0;
  uint64_t freed_ = 0;            // as the peer knows it
  mutable bool refused_ = false;  // what the peer wrote was wrong: nothing of it is used any more
  Refused mismatch_;
  mutable Error error_;
};

}  // namespace rondo
