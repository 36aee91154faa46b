#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "ring/base/check.h"
#include "ring/engine/run/binding.h"
#include "transport/link.h"

namespace rondo {

// The sending side of a link. It remembers which slices the link still reads, so the run knows when their memory may be
// written again. Never allocates after start().
class Port {
 public:
  void start(Link& link) {
    link_ = &link;
    items_.resize(std::max<size_t>(link.depth(), 1));
    first_ = last_ = 0;
  }
  Link& link() const { return *link_; }

  // Sends memory that must stay unchanged until the link has sent it.
  void send(const Slice& slice, const std::byte* memory) { keep(slice, link_->send(slice.tag, memory)); }
  // Sends what was written into the slot that the link has reserved.
  void commit(const Slice& slice) { keep(slice, link_->commit(slice.tag)); }

  // Number of the oldest slice that the link still reads; `none` if there is none.
  uint64_t oldest_unsent(uint64_t none) {
    drop_sent();
    return first_ == last_ ? none : items_[first_ % items_.size()].number;
  }

 private:
  struct Item {
    uint64_t number = 0;  // of the slice
    uint64_t sent = 0;    // the Link::sent() that frees it
  };

  // Room is made before the slice is kept. A link over memory sends at once, and takes the next slice as soon
  // as the peer has read one, in the middle of a pass: slices that are sent by then must not fill the queue.
  void keep(const Slice& slice, uint64_t sent) {
    drop_sent();
    RONDO_CHECK(last_ - first_ < items_.size(), "more slices pending than the link holds");
    items_[last_++ % items_.size()] = {slice.number, sent};
  }
  void drop_sent() {
    const uint64_t sent = link_->sent();
    while (first_ != last_ && items_[first_ % items_.size()].sent <= sent) ++first_;
  }

  Link* link_ = nullptr;
  std::vector<Item> items_;  // a ring: first in, first out
  // Counts of slices taken out and put in; they only grow.
  size_t first_ = 0;
  size_t last_ = 0;
};

// Moves one slice of a step: reads its sources, folds or copies them, writes its targets. It is the only part of the
// engine that knows where sources and targets can be:
//     own memory  input, output, scratch: used where it lies
//     slot        of a link: what has arrived is read there, what is sent is written there
//     staging     library memory that other ranks read next: written past the caches where that is faster
//     peer        another rank's buffer that is mapped here: used where it lies
//     pulled      another rank's buffer that is not: copied by the kernel, into memory that stays in cache
// Peers' buffers are touched only in accesses of the board, so that their owners can close them (GracePeriod).
// Never blocks, allocates, locks, logs or throws per slice. One thread at a time.
class SliceMover {
 public:
  // links[i] is the link to plan->peers[i]; none where the plan is over windows.
  void start(const Binding& binding, std::span<Link* const> links);
  // Starts the next operation of the same kind: only the pointers are new.
  void start_again(const RunStart& start);
  const Binding& binding() const { return binding_; }

  // The link of a ref that is a mailbox.
  Link& link(const Ref& ref) const { return ports_[port_index_[ref.peer]].link(); }
  // The address of a slice of any other ref; nullptr: a peer's buffer that is not mapped here.
  std::byte* address(const Ref& ref, const Slice& slice) const;

  // Requires that the sources have arrived, that the links have room, and that the targets may be written. False: it
  // cannot be moved, and failure() says why. Packed slices get the length that travels.
  bool move(const BoundStep& step, Slice& slice);
  // Moves a step without data: an empty slice to every target.
  void signal(const BoundStep& step, const Slice& slice);

  // PlanRun::not_finite().
  const WireNote& not_finite() const { return not_finite_; }

  // Nothing moves any more; failure() is this. Until the next start.
  void fail(const RunFailure& failure) { failure_ = failure; }
  bool failed() const { return failure_.kind != RunFailure::Kind::kNone; }
  // Why nothing moves any more: what fail() or move() found, else the first link that has failed.
  RunFailure failure() const;

  bool pump();
  // Number of the oldest slice that a link still reads; `none` if there is none.
  uint64_t oldest_unsent(uint64_t none);

 private:
  // The place of a slice in a peer's buffer.
  struct PeerPlace {
    std::byte* mapped;  // nullptr: nowhere here
    uint64_t address;   // in the peer's process
  };

  // move() within an access, or where no buffer of a peer is touched.
  bool move_open(const BoundStep& step, Slice& slice);
  bool move_coded(const BoundStep& step, Slice& slice);
  void note(const WireNote& found, const BoundStep& step, const Slice& slice);
  WireNote note_of(const std::byte* memory) const;
  void keep_note(const WireNote& found, const std::byte* memory);
  bool buffers_open(const BoundStep& step);
  PeerPlace peer_place(const Ref& ref, const Slice& slice) const;
  const std::byte* source(const BoundStep& step, size_t index, const Slice& slice);
  const std::byte* copy(const BoundStep& step, const Slice& slice, const std::byte* from);
  const std::byte* fold(const BoundStep& step, const Slice& slice, const void* const* sources);
  void fold_and_stream(const CombineMove& move, uint64_t count, std::byte* staged);
  void send(const BoundStep& step, const Slice& slice, const std::byte* kept);
  size_t block_of(const BoundStep& step) const { return step.memory->block % binding_.plan->blocks; }
  Port& port(const Ref& ref) { return ports_[port_index_[ref.peer]]; }

  Binding binding_;
  std::vector<Port> ports_;           // by index in plan->peers
  std::vector<uint32_t> port_index_;  // by rank
  // Partial folds of one round; elements of scratch_element_bytes_.
  std::vector<std::byte> scratch_;
  size_t scratch_element_bytes_ = 0;
  std::vector<std::byte> pulled_;  // a slice of each source that is pulled
  WireFold wire_;
  WireNote not_finite_;
  // Slices in memory with an element that is not finite, which a later step may send on; by where a slice begins.
  std::unordered_map<const std::byte*, WireNote> kept_notes_;
  RunFailure failure_;  // of no link
};

}  // namespace rondo
