#include "ring/engine/p2p/message_trials.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace rondo {
namespace {

// The first is open on every stream, the second only where the peer can read.
constexpr Algorithm kWays[] = {Algorithm::kStaged, Algorithm::kPull};

// So many messages have at least of_bytes.
uint32_t messages(uint64_t of_bytes, uint64_t bytes) { return static_cast<uint32_t>((of_bytes + bytes - 1) / bytes); }

}  // namespace

MessageTrials::MessageTrials(uint64_t bytes, bool reads)
    : call_{{Algorithm::kStaged, false}},
      settling_messages_(messages(kSettlingBytes, bytes)),
      call_messages_(messages(kCallBytes, bytes)),
      trials_(std::span(kWays).first(reads ? 2 : 1), Trials::Stores::kBoth, false, kPatience) {}

// The end of a call, or of the messages that settle a new way. A call is timed from its first message to the
// first of the next call.
void MessageTrials::turn(const Clock& now_ns) {
  if (!std::exchange(settling_, false)) {
    if (call_.timed) {
      trials_.learn(call_, now_ns() - began_ns_);
      trials_.decide();
    }
    const Way before = call_.way;
    call_ = trials_.next();
    trials_.began();
    settling_ = !(call_.way == before);
  }
  left_ = settling_ ? settling_messages_ : call_messages_;
  if (call_.timed && !settling_) began_ns_ = now_ns();
}

PeerMessageTrials::PeerMessageTrials(uint64_t read_above) {
  kinds_.reserve(kKinds);
  for (int kind = 0; kind < kKinds; ++kind) {
    const uint64_t least = MessageTrials::kFewestBytes << kind;
    kinds_.emplace_back(least, least > read_above);
  }
}

// Sizes from one power of two to the next share their trials.
MessageTrials& PeerMessageTrials::of(uint64_t bytes) {
  const int kind = std::bit_width(bytes / MessageTrials::kFewestBytes) - 1;
  return kinds_[static_cast<size_t>(std::min(kind, kKinds - 1))];
}

}  // namespace rondo
