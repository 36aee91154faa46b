#pragma once

#include <array>
#include <cstdint>

namespace rondo {

// Which sends by MSG_ZEROCOPY the kernel still reads memory of. It numbers them from 0 on, modulo 2^32, one each call
// that took bytes, and notifies of ranges of numbers, which may come out of order. Pure bookkeeping: no allocation, no
// system call.
class ZerocopyLedger {
 public:
  // Sends that can be pending at once. A link has at most 65 slices on their way (RONDO_SLICES_PER_CHUNK), and each is
  // in one call or, where the socket takes it by parts, in a few.
  static constexpr uint32_t kCapacity = 256;

  // first_number: of the first send; other than 0 in tests only.
  explicit ZerocopyLedger(uint32_t first_number = 0) : first_(first_number), next_(first_number) {}

  bool empty() const { return first_ == next_; }
  bool full() const { return next_ - first_ == kCapacity; }
  // A call took bytes from position `begin` of the stream on. Requires !full().
  void sent(uint64_t begin);

  enum class How : uint8_t { kFromMemory, kCopied };
  // A notification: sends first .. last, both included. False, and nothing is changed, if it names one that is not
  // pending: the kernel and this ledger count differently.
  bool completed(uint32_t first, uint32_t last, How how);

  // Where the oldest pending send begins. Requires !empty(). What was written from there on counts as held.
  uint64_t oldest() const { return at(first_).begin; }
  // Completed sends that the kernel copied after all, since the last one that it did not.
  uint64_t copied_in_a_row() const { return copied_in_a_row_; }

 private:
  struct Send {
    uint64_t begin = 0;
    bool done = false;
  };
  // kCapacity divides 2^32: numbers that wrap keep their places.
  Send& at(uint32_t number) { return sends_[number % kCapacity]; }
  const Send& at(uint32_t number) const { return sends_[number % kCapacity]; }

  std::array<Send, kCapacity> sends_;
  uint32_t first_;  // the oldest pending send
  uint32_t next_;   // the number of the next
  uint64_t copied_in_a_row_ = 0;
};

}  // namespace rondo
