#include "ring/engine/p2p/store_trials.h"

#include <algorithm>
#include <bit>

namespace rondo {
namespace {

Stores other(Stores stores) { return stores == Stores::kCached ? Stores::kStreamed : Stores::kCached; }

// By a part in so many.
bool leads(uint64_t shorter, uint64_t longer, uint64_t part) { return shorter + shorter / part < longer; }

uint32_t messages(uint64_t of_bytes, uint64_t bytes) { return static_cast<uint32_t>((of_bytes + bytes - 1) / bytes); }

}  // namespace

StoreTrials::StoreTrials(uint64_t bytes)
    : settling_(messages(kSettlingBytes, bytes)), timed_(std::max(settling_, kFewestTimed)), bytes_(bytes) {}

void StoreTrials::turn(const Clock& now_ns) {
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

void StoreTrials::begin(int rounds) {
  rounds_ = rounds;
  round_ = 0;
  least_ns_.fill(UINT64_MAX);
  begin_block(best_);
}

void StoreTrials::begin_block(Stores stores) {
  now_ = stores;
  state_ = State::kSettling;
  left_ = settling_;
}

void StoreTrials::end_block(uint64_t took_ns) {
  uint64_t& least = least_ns_[static_cast<size_t>(now_)];
  least = std::min(least, took_ns);
  if (now_ == best_) return begin_block(other(best_));
  ++round_;
  decide();
}

// One block of each is a look: a lead of the other kind by an eighth, more than blocks differ by themselves, begins
// trials. These end early where one kind is ahead by half. A twentieth decides, as in ring/engine/route/trials.cc.
void StoreTrials::decide() {
  const uint64_t best = least_ns_[static_cast<size_t>(best_)], rival = least_ns_[static_cast<size_t>(other(best_))];
  if (rounds_ == 1) return leads(rival, best, 8) ? begin(kRounds) : settle(best_);
  const bool clear = leads(best, rival, 2) || (round_ > 1 && leads(rival, best, 2));
  if (round_ < rounds_ && !clear) return begin_block(best_);
  settle(leads(rival, best, 20) ? other(best_) : best_);
}

void StoreTrials::settle(Stores best) {
  patience_bytes_ = tried_ && best == best_ ? std::min(2 * patience_bytes_, kLastPatienceBytes) : kFirstPatienceBytes;
  best_ = now_ = best;
  tried_ = true;
  state_ = State::kSettled;
  left_ = static_cast<uint32_t>(std::max(patience_bytes_ / bytes_, kFewestPatience));
}

PeerStoreTrials::PeerStoreTrials() {
  for (int kind = 0; kind < kKinds; ++kind) kinds_.emplace_back(uint64_t{kFewestStreamed} << kind);
}

StoreTrials& PeerStoreTrials::of(uint64_t bytes) {
  const int kind = std::bit_width(bytes / kFewestStreamed) - 1;
  return kinds_[static_cast<size_t>(std::min(kind, kKinds - 1))];
}

}  // namespace rondo
