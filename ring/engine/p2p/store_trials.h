#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/cross_copy.h"

namespace rondo {

// Messages of like sizes to one peer: whether cached or streamed stores (kernels/cross_copy.h) make their exchange
// shorter. Both run in turn; what is compared is the time in which as many messages follow one another, so all that a
// kind of stores costs either side counts, and what the program does in between counts for both alike. As cores may
// come near each other or part (a virtual machine is moved), both are looked at again. Pure: the clock is the caller's.
class StoreTrials {
 public:
  using Clock = std::function<uint64_t()>;  // ns

  // bytes: of a message.
  explicit StoreTrials(uint64_t bytes);

  Stores current() const { return now_; }
  // A message begins, or has begun. Costs a decrement, but for one message of many.
  void count(const Clock& now_ns) {
    if (--left_ == 0) turn(now_ns);
  }

  // A block of messages by one kind of stores: first those that fill the ring once, which are not timed since the lines
  // of the other kind are still there, then the timed ones, of as many bytes in all and at least two.
  static constexpr uint64_t kSettlingBytes = 2 << 20;
  static constexpr uint32_t kFewestTimed = 2;
  // At most so many blocks of each kind, whose shortest are compared: what disturbs a block makes it longer.
  static constexpr int kRounds = 4;
  // A program that sends only so many messages of a kind is left alone.
  static constexpr uint32_t kFew = 16;
  // Bytes, and at least messages, from one look to the next; a look costs the other kind's block: 4 MiB.
  static constexpr uint64_t kFirstPatienceBytes = uint64_t{128} << 20;
  static constexpr uint64_t kLastPatienceBytes = uint64_t{1} << 30;
  static constexpr uint64_t kFewestPatience = 1024;

 private:
  enum class State : uint8_t { kSettled, kSettling, kTimed };

  void turn(const Clock& now_ns);
  void begin(int rounds);
  void begin_block(Stores stores);
  void end_block(uint64_t took_ns);
  void decide();
  void settle(Stores best);

  const uint32_t settling_, timed_;  // messages of a block
  const uint64_t bytes_;
  State state_ = State::kSettled;
  Stores now_ = Stores::kCached;
  Stores best_ = Stores::kCached;
  uint32_t left_ = kFew;  // messages until the state changes
  bool tried_ = false;    // trials have ended once
  int round_ = 0;
  int rounds_ = 0;
  uint64_t began_ns_ = 0;  // the timed part of the block
  uint64_t patience_bytes_ = kFirstPatienceBytes;
  std::array<uint64_t, 2> least_ns_{};  // of a block, by kind of stores
};

// The trials of one peer, by the power of two of a message's size.
class PeerStoreTrials {
 public:
  PeerStoreTrials();
  // Requires bytes >= kFewestStreamed.
  StoreTrials& of(uint64_t bytes);

 private:
  static constexpr int kKinds = 15;  // the last: 64 MiB and more
  std::vector<StoreTrials> kinds_;
};

}  // namespace rondo
