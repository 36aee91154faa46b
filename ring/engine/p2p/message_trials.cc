#include "ring/engine/p2p/message_trials.h"

#include <algorithm>
#include <bit>

namespace rondo {
namespace {

// By a part in so many.
bool leads(uint64_t shorter, uint64_t longer, uint64_t part) { return shorter + shorter / part < longer; }

uint32_t messages(uint64_t of_bytes, uint64_t bytes) { return static_cast<uint32_t>((of_bytes + bytes - 1) / bytes); }

}  // namespace

MessageTrials::MessageTrials(uint64_t bytes, bool reads)
    : settling_(messages(kSettlingBytes, bytes)),
      timed_(std::max(settling_, kFewestTimed)),
      bytes_(bytes),
      ways_(reads ? 3 : 2) {}

void MessageTrials::give_up_reading() {
  ways_ = 2;
  if (now_ != MessageWay::kRead && best_ != MessageWay::kRead) return;
  state_ = State::kSettled;
  now_ = best_ = MessageWay::kCached;
  left_ = kFew;
}

void MessageTrials::turn(const Clock& now_ns) {
  switch (state_) {
    case State::kSettled:
      return begin(tried_ ? 1 : kRounds);
    case State::kSettling:
      state_ = State::kTimed;
      left_ = timed_;
      began_ns_ = now_ns();
      return;
    case State::kTimed:
      return end_block(now_ns() - began_ns_);
  }
}

void MessageTrials::begin(int rounds) {
  rounds_ = rounds;
  round_ = 0;
  dropped_ = 0;
  least_ns_.fill(UINT64_MAX);
  begin_round();
}

// What was best comes first, the others follow in their order.
void MessageTrials::begin_round() {
  const int best = static_cast<int>(best_);
  int first = 0;
  while (!tries(first)) ++first;
  begin_block(tries(best) ? best : first);
}

void MessageTrials::begin_block(int way) {
  now_ = static_cast<MessageWay>(way);
  state_ = State::kSettling;
  left_ = settling_;
}

void MessageTrials::end_block(uint64_t took_ns) {
  uint64_t& least = least_ns_[static_cast<size_t>(now_)];
  least = std::min(least, took_ns);
  const int best = static_cast<int>(best_);
  for (int way = now_ == best_ ? 0 : static_cast<int>(now_) + 1; way < ways_; ++way) {
    if (way != best && tries(way)) return begin_block(way);
  }
  ++round_;
  decide();
}

// One block of each is a look: a lead of another way by an eighth, more than blocks differ by themselves, begins
// trials. A way is dropped where another is ahead by half. A twentieth decides, as in ring/engine/route/trials.cc.
void MessageTrials::decide() {
  const auto least = std::min_element(least_ns_.begin(), least_ns_.begin() + ways_);
  const auto winner = static_cast<MessageWay>(least - least_ns_.begin());
  const uint64_t before = least_ns(best_);
  if (rounds_ == 1) return leads(*least, before, 8) ? begin(kRounds) : settle(best_);
  int left = 0;
  for (int way = 0; way < ways_; ++way) {
    const bool slow = leads(*least, least_ns_[static_cast<size_t>(way)], 2);
    if (slow && (way != static_cast<int>(best_) || round_ > 1)) dropped_ |= 1u << way;
    left += tries(way) ? 1 : 0;
  }
  if (round_ < rounds_ && left > 1) return begin_round();
  settle(leads(*least, before, 20) ? winner : best_);
}

void MessageTrials::settle(MessageWay best) {
  patience_bytes_ = tried_ && best == best_ ? std::min(2 * patience_bytes_, kLastPatienceBytes) : kFirstPatienceBytes;
  best_ = now_ = best;
  tried_ = true;
  state_ = State::kSettled;
  left_ = static_cast<uint32_t>(std::max(patience_bytes_ / bytes_, kFewestPatience));
}

PeerMessageTrials::PeerMessageTrials(uint64_t read_above) {
  for (int kind = 0; kind < kKinds; ++kind) {
    const uint64_t least = uint64_t{kFewestStreamed} << kind;
    kinds_.emplace_back(least, least > read_above);
  }
}

void PeerMessageTrials::give_up_reading() {
  for (MessageTrials& kind : kinds_) kind.give_up_reading();
}

MessageTrials& PeerMessageTrials::of(uint64_t bytes) {
  const int kind = std::bit_width(bytes / kFewestStreamed) - 1;
  return kinds_[static_cast<size_t>(std::min(kind, kKinds - 1))];
}

}  // namespace rondo
