#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ring/engine/route/trials.h"

namespace rondo {

// Chooses the way of the payloads of one size to another process of the host, by Trials of:
// - kStaged: through the stream, by stores that go through the caches or past them (kernels/cross_copy.h);
// - kPull: the receiver reads the sender's memory, one copy by the kernel.
//
// One call of the trials is 512 KiB of messages. Its cost is the time in which they follow one another: so
// everything counts that a way costs either side, and what the program does in between counts for all ways
// alike. The caller owns the clock.
class MessageTrials {
 public:
  using Clock = std::function<uint64_t()>;  // ns

  // bytes: of a message. reads: whether kPull is one of the ways.
  MessageTrials(uint64_t bytes, bool reads);

  const Way& way() const { return call_.way; }
  // A message begins. Costs a decrement, but for one message of many.
  void count(const Clock& now_ns) {
    if (--left_ == 0) turn(now_ns);
  }

  // Messages from here on have trials. A shorter one takes a whole buffer of the ring, too, so its trials would
  // touch all of that; and cached stores are faster for it, however the cores lie (docs/tuning.md).
  static constexpr uint64_t kFewestBytes = 16 * 1024;
  // Bytes of a call, at least one message.
  static constexpr uint64_t kCallBytes = 512 * 1024;
  // After a change of the way so many bytes fill the ring once and are not timed: until then it holds lines of
  // the way before.
  static constexpr uint64_t kSettlingBytes = 2 << 20;
  // A program that sends no more messages of a kind than these has no trials of it.
  static constexpr uint32_t kFew = 16;
  // A slow way costs 4 MiB of messages. All ways are tried again after 128 MiB, later after 1 GiB: the two
  // processes may come to other cores (a virtual machine is moved), and programs may begin to write what they
  // only sent before.
  static constexpr Trials::Patience kPatience = {256, 2048};

 private:
  void turn(const Clock& now_ns);

  uint32_t left_ = kFew;  // messages until the state changes
  bool settling_ = false;
  Trials::Next call_;  // under way
  uint32_t settling_messages_, call_messages_;
  uint64_t began_ns_ = 0;  // the call, if it is timed
  Trials trials_;
};

// The trials of one peer, by the power of two of a message's size.
class PeerMessageTrials {
 public:
  // read_above: kPull is a way of the sizes above it, as they are asked for anyway.
  explicit PeerMessageTrials(uint64_t read_above);
  // Requires bytes >= MessageTrials::kFewestBytes.
  MessageTrials& of(uint64_t bytes);
  // The peer could not read.
  void give_up_reading() { *this = PeerMessageTrials(UINT64_MAX); }

 private:
  static constexpr int kKinds = 13;  // the last: 64 MiB and more
  std::vector<MessageTrials> kinds_;
};

}  // namespace rondo
