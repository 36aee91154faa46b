#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <utility>
#include <vector>

#include "kernels/cross_copy.h"
#include "ring/base/check.h"
#include "transport/shared/mailbox.h"
#include "transport/shared/shared_link.h"

namespace rondo {

// The four orderings that the link rests on. Tests weaken each in turn and expect the thread sanitizer to object.
//   publish (flag) pairs with observe: a rank that sees the flag sees payload and tag.
//   free (freed) pairs with reuse: the slot was read before it is written again.
// The two stores are sequentially consistent rather than release, because a doorbell's flag is read behind them.
struct SharedLinkOrders {
  static constexpr std::memory_order kPublish = std::memory_order_seq_cst;
  static constexpr std::memory_order kObserve = std::memory_order_acquire;
  static constexpr std::memory_order kFree = std::memory_order_seq_cst;
  static constexpr std::memory_order kReuse = std::memory_order_acquire;
};

template <typename Orders>
class SharedLink final : public Link {
 public:
  SharedLink(SharedLinkEnd end, const LinkShape& shape)
      : end_(std::move(end)),
        shape_(shape),
        out_(direction(end_.lower), MailboxLayout(shape)),
        in_(direction(!end_.lower), MailboxLayout(shape)),
        landings_(shape.depth) {}

  ~SharedLink() override {
    if (::getpid() != pid_) return;  // the parent's: the child must not speak for it
    mailbox_end(end_.lower).closed.store(1, std::memory_order_seq_cst);
    end_.bell->ring();
  }

  uint32_t depth() const override { return shape_.depth; }

  bool can_post() const override { return posted_ - released_ < shape_.depth; }
  void post(const SliceTag& tag, std::byte* landing) override {
    RONDO_CHECK(can_post() && tag.bytes <= shape_.slice_bytes, "no landing is free for the slice");
    landings_[posted_++ % shape_.depth] = {tag, landing, nullptr};
  }
  uint32_t unfilled() const override { return static_cast<uint32_t>(posted_ - filled_); }
  const std::byte* arrived() override {
    if (filled_ == released_ && !accept()) return nullptr;
    return landings_[released_ % shape_.depth].payload;
  }
  void release() override {
    RONDO_CHECK(filled_ > released_, "nothing has arrived");
    ++released_;
    free_slots();
  }

  bool can_send() const override {
    return committed_ - sent_freed_ < shape_.depth || (look_at_freed() && committed_ - sent_freed_ < shape_.depth);
  }
  std::byte* reserve(uint32_t bytes) override {
    RONDO_CHECK(can_send() && bytes <= shape_.slice_bytes, "no room for the slice");
    return out_.payload(committed_, bytes);
  }
  uint64_t commit(const SliceTag& tag) override {
    RONDO_CHECK(can_send() && tag.bytes <= shape_.slice_bytes, "no room for the slice");
    SlotHead& head = out_.head(committed_);
    head.sequence = tag.sequence;
    head.fingerprint = tag.fingerprint;
    ++committed_;
    head.flag.store(slot_flag(committed_, tag.bytes), Orders::kPublish);
    end_.bell->ring();
    return committed_;
  }
  uint64_t send(const SliceTag& tag, const std::byte* payload) override {
    std::byte* slot = reserve(tag.bytes);
    cross_copy(slot, payload, tag.bytes, stores());
    return commit(tag);
  }
  uint64_t sent() const override { return committed_; }

  bool pump() override {
    bool moved = false;
    // One large copy a pass, so that the caller combines a slice while it is in cache.
    for (bool copied = false; !copied && accept(); moved = true) {
      const Landing& landing = landings_[(filled_ - 1) % shape_.depth];
      copied = landing.memory != nullptr && landing.tag.bytes > kSmallCopy;
    }
    if (committed_ != sent_freed_) moved |= look_at_freed();
    if (!moved) moved = look_for_end();
    return moved;
  }
  const Error* error() const override { return error_.ok() ? nullptr : &error_; }

 private:
  static constexpr uint32_t kSmallCopy = 16 * 1024;

  struct Landing {
    SliceTag tag;
    std::byte* memory = nullptr;         // the caller's; null: the slot is lent
    const std::byte* payload = nullptr;  // once filled
  };

  Stores stores() const { return end_.stores ? end_.stores->load(std::memory_order_relaxed) : Stores::kCached; }
  std::byte* direction(bool from_lower) const {
    const MailboxLayout layout(shape_);
    return end_.data + (from_lower ? layout.first : layout.second);
  }
  MailboxEnd& mailbox_end(bool lower) const { return reinterpret_cast<MailboxEnd*>(end_.data)[lower ? 0 : 1]; }

  // The next slice, if it is there and has a landing: compared before a byte of it is used. Cost while there is none:
  // one load.
  bool accept() {
    if (filled_ == posted_ || refused_) return false;
    const SlotHead& head = in_.head(filled_);
    const uint64_t flag = head.flag.load(Orders::kObserve);
    const auto number = static_cast<uint32_t>(flag >> 32);
    if (number != static_cast<uint32_t>(filled_ + 1)) return check_absent(flag);
    Landing& landing = landings_[filled_ % shape_.depth];
    const SliceTag got{head.sequence, head.fingerprint, static_cast<uint32_t>(flag)};
    if (got != landing.tag) return refuse(got, landing.tag);
    // From here on only the caller's own numbers count.
    landing.payload = in_.payload(filled_, landing.tag.bytes);
    ++filled_;
    if (landing.memory == nullptr) return true;
    if (landing.tag.bytes > 0) std::memcpy(landing.memory, landing.payload, landing.tag.bytes);
    landing.payload = landing.memory;
    free_slots();
    return true;
  }

  // A slot that is not written yet shows the slice before, or nothing.
  bool check_absent(uint64_t flag) {
    const uint32_t before = filled_ < shape_.depth ? 0 : static_cast<uint32_t>(filled_ + 1 - shape_.depth);
    if (static_cast<uint32_t>(flag >> 32) == before) return false;
    corrupt(fmt::format("slice {} shows the number {:#x}", filled_, flag));
    return false;
  }

  bool refuse(const SliceTag& got, const SliceTag& expected) {
    if (got.bytes > shape_.slice_bytes) {
      corrupt(fmt::format("slice {} claims {} bytes of at most {}", filled_, got.bytes, shape_.slice_bytes));
      return false;
    }
    refused_ = true;
    error_ = {ErrorCode::kMismatch,
              fmt::format("{} sent a slice of operation {} (fingerprint {:016x}, {} bytes): operation {} (fingerprint "
                          "{:016x}, {} bytes) was expected",
                          end_.peer_name, got.sequence, got.fingerprint, got.bytes, expected.sequence,
                          expected.fingerprint, expected.bytes),
              {}};
    return false;
  }

  void corrupt(const std::string& what) const {
    refused_ = true;
    error_ = {ErrorCode::kProtocol, fmt::format("the memory shared with {} is corrupt: {}", end_.peer_name, what), {}};
  }

  // Gives back the slots that are needed no more: of slices that were copied on arrival, and of those released.
  void free_slots() {
    const uint64_t before = freed_;
    while (freed_ < filled_ && (freed_ < released_ || landings_[freed_ % shape_.depth].memory != nullptr)) ++freed_;
    if (freed_ == before) return;
    in_.freed().store(freed_, Orders::kFree);
    end_.bell->ring();
  }

  // True if the peer has freed more of what was sent.
  bool look_at_freed() const {
    const uint64_t freed = out_.freed().load(Orders::kReuse);
    if (freed == sent_freed_ || refused_) return false;
    if (freed < sent_freed_ || freed > committed_) {
      corrupt(fmt::format("of {} slices sent, {} then {} are freed", committed_, sent_freed_, freed));
      return false;
    }
    sent_freed_ = freed;
    return true;
  }

  // What the peer wrote before it went is used first: the look at its end comes before the last look at the slots.
  bool look_for_end() {
    if (!error_.ok() || (filled_ == posted_ && committed_ - sent_freed_ < shape_.depth)) return false;
    const bool gone = mailbox_end(!end_.lower).closed.load(std::memory_order_acquire) != 0 ||
                      end_.life->over.load(std::memory_order_acquire);
    if (!gone) return false;
    if (accept() || look_at_freed()) return true;
    if (error_.ok()) error_ = {ErrorCode::kPeerLost, fmt::format("{} closed its link", end_.peer_name), {}};
    return false;
  }

  const SharedLinkEnd end_;
  const LinkShape shape_;
  const Mailbox out_, in_;
  const pid_t pid_ = ::getpid();
  std::vector<Landing> landings_;
  // Receiving: posted >= filled >= released; filled >= freed.
  uint64_t posted_ = 0;
  uint64_t filled_ = 0;
  uint64_t released_ = 0;
  uint64_t freed_ = 0;  // as the peer knows it
  // Sending.
  uint64_t committed_ = 0;
  mutable uint64_t sent_freed_ = 0;  // as last seen
  mutable bool refused_ = false;     // what the peer wrote was wrong: nothing of it is used any more
  mutable Error error_;
};

}  // namespace rondo
