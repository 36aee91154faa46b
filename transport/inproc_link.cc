#include "transport/inproc_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "ring/base/check.h"
#include "transport/slots.h"

namespace rondo {
namespace {

// One direction. The sender writes a slot and its tag and then stores `written`; the receiver reads `written` and then
// the slot, and stores `consumed` when it needs the slot no more; the sender reads `consumed` before it writes the slot
// again. Both counters are stored sequentially consistent: the doorbell's flag is read behind them (Doorbell::arm).
struct Mailbox {
  Mailbox(const LinkShape& shape, std::shared_ptr<Doorbell> receiver, std::shared_ptr<Doorbell> sender)
      : tags(shape.depth),
        slots(shape.depth, shape.slice_bytes),
        receiver_bell(std::move(receiver)),
        sender_bell(std::move(sender)) {}

  std::vector<SliceTag> tags;
  Slots slots;
  std::shared_ptr<Doorbell> receiver_bell;  // shared by both ends: either may go first
  std::shared_ptr<Doorbell> sender_bell;
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> consumed{0};
  alignas(64) std::atomic<bool> closed{false};  // by the sender
};

class InprocLink final : public Link {
 public:
  InprocLink(const LinkShape& shape, std::shared_ptr<Mailbox> in, std::shared_ptr<Mailbox> out, std::string peer_name)
      : shape_(shape),
        in_(std::move(in)),
        out_(std::move(out)),
        landings_(shape.depth),
        peer_name_(std::move(peer_name)) {}

  ~InprocLink() override {
    out_->closed.store(true);
    out_->receiver_bell->ring();
  }

  uint32_t depth() const override { return shape_.depth; }

  bool can_post() const override { return posted_ - released_ < landings_.size(); }
  void post(const SliceTag& tag, std::byte* landing) override {
    RONDO_CHECK(can_post() && tag.bytes <= shape_.slice_bytes, "no landing is free for the slice");
    landings_[posted_++ % landings_.size()] = {tag, landing};
  }
  uint32_t unfilled() const override {
    return static_cast<uint32_t>(posted_ - std::min(posted_, std::max(written_, released_)));
  }

  const std::byte* arrived() override {
    if (released_ == posted_ || released_ >= written_ || refused_) return nullptr;
    const Landing& oldest = landings_[released_ % landings_.size()];
    std::byte* slot = in_->slots.at(released_);
    if (checked_ == released_) {
      if (!accept(oldest.tag)) return nullptr;
      if (oldest.memory != nullptr) std::memcpy(oldest.memory, slot, oldest.tag.bytes);
      ++checked_;
    }
    return oldest.memory != nullptr ? oldest.memory : slot;
  }

  void release() override {
    RONDO_CHECK(arrived() != nullptr, "nothing has arrived");
    ++released_;
    in_->consumed.store(released_, std::memory_order_seq_cst);
    in_->sender_bell->ring();
  }

  bool can_send() const override { return committed_ - out_->consumed.load(std::memory_order_acquire) < shape_.depth; }
  std::byte* reserve(uint32_t bytes) override {
    RONDO_CHECK(can_send() && bytes <= shape_.slice_bytes, "no room for the slice");
    return out_->slots.at(committed_);
  }
  uint64_t commit(const SliceTag& tag) override {
    RONDO_CHECK(can_send() && tag.bytes <= shape_.slice_bytes, "no room for the slice");
    out_->tags[committed_ % shape_.depth] = tag;
    if (tag.bytes == 0) out_->slots.at(committed_);
    ++committed_;
    out_->written.store(committed_, std::memory_order_seq_cst);
    out_->receiver_bell->ring();
    return committed_;
  }
  uint64_t send(const SliceTag& tag, const std::byte* payload) override {
    std::byte* slot = reserve(tag.bytes);
    if (tag.bytes > 0) std::memcpy(slot, payload, tag.bytes);
    return commit(tag);
  }
  uint64_t sent() const override { return committed_; }

  bool pump() override {
    const uint64_t written = in_->written.load(std::memory_order_acquire);
    const uint64_t consumed = out_->consumed.load(std::memory_order_acquire);
    const bool moved = written != written_ || consumed != consumed_;
    written_ = written;
    consumed_ = consumed;
    // `closed` is stored after the last `written`; read the other way round, so nothing written before it is missed.
    if (error_.ok() && unfilled() > 0 && in_->closed.load(std::memory_order_acquire) &&
        in_->written.load(std::memory_order_acquire) == written_) {
      error_ = {ErrorCode::kPeerLost, fmt::format("{} closed its link", peer_name_), {}};
    }
    return moved;
  }

  const Error* error() const override { return error_.ok() ? nullptr : &error_; }

 private:
  struct Landing {
    SliceTag tag;
    std::byte* memory = nullptr;
  };

  bool accept(const SliceTag& expected) {
    const SliceTag& got = in_->tags[released_ % shape_.depth];
    if (got == expected) return true;
    refused_ = true;
    error_ = {ErrorCode::kMismatch,
              fmt::format("{} sent a slice of operation {} (fingerprint {:016x}, {} bytes): operation {} (fingerprint "
                          "{:016x}, {} bytes) was expected",
                          peer_name_, got.sequence, got.fingerprint, got.bytes, expected.sequence, expected.fingerprint,
                          expected.bytes),
              {}};
    return false;
  }

  LinkShape shape_;
  std::shared_ptr<Mailbox> in_;   // shared with the other end
  std::shared_ptr<Mailbox> out_;  // likewise
  std::vector<Landing> landings_;
  uint64_t posted_ = 0;
  uint64_t released_ = 0;
  uint64_t checked_ = 0;  // slices whose tag was compared and that were copied to their landing
  uint64_t written_ = 0;  // as last pumped
  uint64_t consumed_ = 0;
  uint64_t committed_ = 0;
  bool refused_ = false;
  Error error_;
  std::string peer_name_;
};

}  // namespace

std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> make_inproc_link(const LinkShape& shape,
                                                                         std::shared_ptr<Doorbell> first_bell,
                                                                         std::shared_ptr<Doorbell> second_bell,
                                                                         std::string first_name,
                                                                         std::string second_name) {
  auto to_second = std::make_shared<Mailbox>(shape, second_bell, first_bell);
  auto to_first = std::make_shared<Mailbox>(shape, first_bell, second_bell);
  return {std::make_unique<InprocLink>(shape, to_first, to_second, std::move(second_name)),
          std::make_unique<InprocLink>(shape, to_second, to_first, std::move(first_name))};
}

}  // namespace rondo
