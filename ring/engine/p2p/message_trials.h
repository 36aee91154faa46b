#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/cross_copy.h"

namespace rondo {

// How the payload of a message comes to another process of the host.
enum class MessageWay : uint8_t {
  kCached,    // through the stream, by stores that go through the caches (kernels/cross_copy.h)
  kStreamed,  // the same, past the caches
  kRead,      // its receiver reads the sender's memory: one copy, by the kernel
};

// Messages of like sizes to one peer: which way makes their exchange shortest. All run in turn; what is compared is the
// time in which as many messages follow one another, so all that a way costs either side counts, and what the program
// does in between counts for all alike. As cores may come near each other or part (a virtual machine is moved), and
// programs may begin to write what they only sent before, the ways are looked at again. Pure: the clock is the
// caller's.
class MessageTrials {
 public:
  using Clock = std::function<uint64_t()>;  // ns

  // bytes: of a message. reads: whether kRead is one of the ways.
  MessageTrials(uint64_t bytes, bool reads);

  MessageWay current() const { return now_; }
  // The peer could not read: that is no way any more.
  void give_up_reading();
  // A message begins, or has begun. Costs a decrement, but for one message of many.
  void count(const Clock& now_ns) {
    if (--left_ == 0) turn(now_ns);
  }

  // A block of messages by one way: first those that fill the ring once, which are not timed since the lines of the way
  // before are still there, then the timed ones, of as many bytes in all and at least two.
  static constexpr uint64_t kSettlingBytes = 2 << 20;
  static constexpr uint32_t kFewestTimed = 2;
  // At most so many blocks of each way, whose shortest are compared: what disturbs a block makes it longer.
  static constexpr int kRounds = 4;
  // A program that sends only so many messages of a kind is left alone.
  static constexpr uint32_t kFew = 16;
  // Bytes, and at least messages, from one look to the next; a look costs a block of each other way: 4 MiB.
  static constexpr uint64_t kFirstPatienceBytes = uint64_t{128} << 20;
  static constexpr uint64_t kLastPatienceBytes = uint64_t{1} << 30;
  static constexpr uint64_t kFewestPatience = 1024;

 private:
  enum class State : uint8_t { kSettled, kSettling, kTimed };

  void turn(const Clock& now_ns);
  void begin(int rounds);
  void begin_round();
  void begin_block(int way);
  void end_block(uint64_t took_ns);
  void decide();
  void settle(MessageWay best);
  uint64_t least_ns(MessageWay way) const { return least_ns_[static_cast<size_t>(way)]; }
  bool tries(int way) const { return way < ways_ && (dropped_ >> way & 1) == 0; }

  const uint32_t settling_, timed_;  // messages of a block
  const uint64_t bytes_;
  State state_ = State::kSettled;
  MessageWay now_ = MessageWay::kCached;
  MessageWay best_ = MessageWay::kCached;
  int ways_;              // the first so many
  unsigned dropped_ = 0;  // ways that lost these trials already, a bit each
  uint32_t left_ = kFew;  // messages until the state changes
  bool tried_ = false;    // trials have ended once
  int round_ = 0;
  int rounds_ = 0;
  uint64_t began_ns_ = 0;  // the timed part of the block
  uint64_t patience_bytes_ = kFirstPatienceBytes;
  std::array<uint64_t, 3> least_ns_{};  // of a block, by way
};

// The trials of one peer, by the power of two of a message's size.
class PeerMessageTrials {
 public:
  // read_above: kRead is a way of the sizes above it, as they are asked for anyway.
  explicit PeerMessageTrials(uint64_t read_above);
  // Requires bytes >= kFewestStreamed.
  MessageTrials& of(uint64_t bytes);
  void give_up_reading();

 private:
  static constexpr int kKinds = 15;  // the last: 64 MiB and more
  std::vector<MessageTrials> kinds_;
};

}  // namespace rondo
