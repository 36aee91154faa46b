#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cross_copy.h"
#include "transport/island/cell_ring.h"

namespace rondo {

// What a stream's larger pieces lie in. Equal at both ends.
struct BufferShape {
  uint32_t bytes;  // of a buffer's payload
  uint32_t count;  // that the stream's maker begins with; a power of two, at least 32
  constexpr size_t stride() const { return whole_lines(bytes) + kCellBytes; }  // they share no sets of a cache
  // A rank keeps buffers that it has received, beyond those that it has sent, so that it can answer in them:
  // least_kept() at least, most_kept() at most. It gives at_once() of them back at a time.
  constexpr uint32_t least_kept() const { return count / 16; }
  constexpr uint32_t most_kept() const { return count / 2; }
  constexpr uint32_t at_once() const { return count / 16; }
  // Its maker has so many at least, once all that was sent is read.
  constexpr uint32_t least_left() const { return count - (most_kept() + at_once() - 1); }
};

// The buffers of a pair of ranks, as one of them sees them: each is in the hands of the rank that may write it, which
// sends it, filled, and so hands it over. The streams of both directions have them in common: a rank answers in a
// buffer that it has read last, whose lines its own cache holds, where those that its reader had last would have to be
// fetched from there (docs/tuning.md, "Messages inside a host").
//
// Each stream brings a part:
//
//   [how many its reader has given back][which][buffers, in the hands of its maker at first]
//
// A rank that has received more than it will send gives some back, and their writer takes what has rested longest: a
// stream that goes one way passes through so many buffers that their lines have left the reader's cache. What it will
// send is learned: it keeps one more each time that it has had none to answer in, and half as many once it gives back.
//
// Everything in this memory may hold anything at any time: each number is read once, and a buffer is taken from the
// peer only if it is in the peer's hands. Orders as of CellRing; one thread at a time.
template <typename Orders>
class TravelingBuffers {
 public:
  explicit TravelingBuffers(const BufferShape& shape)
      : shape_(shape), read_(2 * shape.count), rested_(2 * shape.count), own_(2 * size_t{shape.count}) {}
  TravelingBuffers(const TravelingBuffers&) = delete;
  TravelingBuffers& operator=(const TravelingBuffers&) = delete;

  const BufferShape& shape() const { return shape_; }
  static constexpr size_t part_bytes(const BufferShape& shape) {
    return entries_bytes(shape) + size_t{shape.count} * shape.stride();
  }
  // The part of the stream that this rank makes (own), or the peer; once each. data: zeroed before the first side was
  // made, in memory, which is kept.
  void add(bool own, std::shared_ptr<void> memory, std::byte* data) {
    parts_[own ? kOwn : kPeers] = {std::move(memory), data};
    for (uint32_t i = 0; own && i < shape_.count; ++i) {
      own_[i] = true;
      rested_.push_back(i);
    }
  }

  // Both ends name a buffer by its number in the stream that it is sent over, or given back to: first those of the
  // stream itself, then those of the other one. `own`: of that stream.
  uint32_t number(uint32_t buffer, bool own) const { return own ? buffer : buffer ^ shape_.count; }

  // Buffers that can be sent.
  uint32_t owned() const { return read_.size() + rested_.size(); }
  // One to be filled, in this way, and sent: the peer's from now on. Stores past the caches are faster where no cache
  // holds the lines. Requires owned() > 0.
  uint32_t take(Stores stores) {
    if (read_.size() == 0) kept_ = std::min(kept_ + 1, shape_.most_kept());
    const bool cached = stores == Stores::kCached;
    if (!cached && read_.size() > 0) rested_.push_back(read_.pop_front());  // a long queue of them is none of near ones
    const uint32_t buffer = cached && read_.size() > 0 ? read_.pop_front() : rested_.pop_front();
    own_[buffer] = false;
    --more_;
    return buffer;
  }
  std::byte* place(uint32_t buffer) const {
    return part_of(buffer).data + entries_bytes(shape_) + (buffer & (shape_.count - 1)) * shape_.stride();
  }

  // The peer has sent it. False: it cannot have.
  bool receive(uint32_t buffer) {
    if (buffer >= own_.size() || own_[buffer] || part_of(buffer).data == nullptr) return false;
    own_[buffer] = true;
    ++more_;
    return true;
  }
  // A received buffer is needed no more. True: some were given back, and the peer may wait for them. look() first: what
  // the peer has given back counts.
  bool finish(uint32_t buffer) {
    read_.push_back(buffer);
    if (read_.size() > shape_.most_kept()) rested_.push_back(read_.pop_front());
    if (more_ < static_cast<int64_t>(kept_ + shape_.at_once())) return false;
    kept_ = std::max(kept_ / 2, shape_.least_kept());
    for (uint32_t i = 0; i < shape_.at_once(); ++i) {
      give_back(read_.size() > 0 ? read_.pop_front() : rested_.pop_front());
    }
    given(kPeers).store(given_out_, Orders::kFree);
    return true;
  }

  // Looks for buffers that the peer has given back.
  Sight look() {
    if (parts_[kOwn].data == nullptr) return Sight::kNothing;
    const uint64_t count = given(kOwn).load(Orders::kReuse);
    if (count == given_in_) return Sight::kNothing;
    if (count - given_in_ > own_.size()) return Sight::kCorrupt;
    while (given_in_ != count) {
      const uint32_t buffer = entry(kOwn, given_in_).load(std::memory_order_relaxed);
      if (!receive(buffer)) return Sight::kCorrupt;
      ++given_in_;
      rested_.push_back(buffer);
    }
    return Sight::kThere;
  }

 private:
  static constexpr size_t kOwn = 0, kPeers = 1;
  struct Part {
    std::shared_ptr<void> memory;  // shared with the stream
    std::byte* data = nullptr;
  };
  const Part& part_of(uint32_t buffer) const { return parts_[buffer < shape_.count ? kOwn : kPeers]; }
  // A ring of at most all buffers. Indices run on beyond the size and wrap with uint32_t, which a power of two divides.
  class Queue {
   public:
    explicit Queue(uint32_t most) : buffers_(most) {}
    uint32_t size() const { return end_ - begin_; }
    void push_back(uint32_t buffer) { at(end_++) = static_cast<uint16_t>(buffer); }
    uint32_t pop_front() { return at(begin_++); }

   private:
    uint16_t& at(uint32_t index) { return buffers_[index & (buffers_.size() - 1)]; }
    std::vector<uint16_t> buffers_;
    uint32_t begin_ = 0, end_ = 0;
  };

  static constexpr size_t entries_bytes(const BufferShape& shape) {
    return kCellBytes + whole_lines(2 * size_t{shape.count} * sizeof(uint16_t));
  }
  // How many the reader of that stream has given back so far, and which, as many of the last as there are buffers.
  std::atomic<uint64_t>& given(size_t part) const {
    return *reinterpret_cast<std::atomic<uint64_t>*>(parts_[part].data);
  }
  std::atomic<uint16_t>& entry(size_t part, uint64_t number) const {
    return reinterpret_cast<std::atomic<uint16_t>*>(parts_[part].data + kCellBytes)[number & (own_.size() - 1)];
  }
  // To the maker of the stream that they came over.
  void give_back(uint32_t buffer) {
    own_[buffer] = false;
    --more_;
    entry(kPeers, given_out_++).store(static_cast<uint16_t>(number(buffer, false)), std::memory_order_relaxed);
  }

  const BufferShape shape_;
  std::array<Part, 2> parts_;
  // Buffers given back, out to the peer and in from it, as this rank has counted them: the shared counts are compared
  // with these.
  uint64_t given_out_ = 0, given_in_ = 0;
  // Those that can be sent, in the order of use: that it has read last, and the others.
  Queue read_, rested_;
  // By buffer: this rank has it.
  std::vector<bool> own_;
  int64_t more_ = 0;                     // received than sent and given back
  uint32_t kept_ = shape_.least_kept();  // of those
};

}  // namespace rondo
