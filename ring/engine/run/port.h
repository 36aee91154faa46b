#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ring/base/check.h"
#include "ring/engine/run/binding.h"
#include "transport/link.h"

namespace rondo {

// A link as one lane sends by it: knows which slices of the lane the link still reads. Never allocates after start().
class Port {
 public:
  void start(Link& link) {
    link_ = &link;
    items_.resize(std::max<size_t>(link.depth(), 1));
    first_ = last_ = 0;
  }
  Link& link() const { return *link_; }

  // Sends memory that stays as it is until the link has sent it.
  void send(const Slice& slice, const std::byte* memory) { keep(slice, link_->send(slice.tag, memory)); }
  // Sends what was written to the slot that the link reserved.
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

  // A link over memory sends at once and has room again as soon as the peer has read, in the middle of a pass: what is
  // sent by then must not fill the queue.
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
  size_t first_ = 0;
  size_t last_ = 0;
};

}  // namespace rondo
