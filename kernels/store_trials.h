#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace rondo {

// Chooses between cached and streamed stores for copies of about one size (cross_copy.h). Both are timed, and again
// every kKept copies, since the faster one changes while a program runs. Pure logic; one thread at a time.
class StoreTrials {
 public:
  // Timed copies of each kind: the fastest counts, since any may be disturbed.
  static constexpr int kTimes = 5;
  // Warm-up: copies of a kind are timed once they find memory that the same kind wrote, which is when the first place
  // comes round again, or after a bound.
  static constexpr int kMostToWarm = 64;
  // Copies between trials. The slower kind costs up to tenfold, for about ten copies a trial: below 5 %.
  static constexpr int kKept = 2048;

  // margin: streamed stores are chosen if they are more than so many times as fast.
  explicit StoreTrials(double margin) : margin_(margin) {}

  // Whether the next copy has to stream.
  bool streams() const { return trying_other_ ? !streams_ : streams_; }
  bool timed() const { return phase_ == Phase::kTiming; }

  // Reports that copy: its target, and its time if timed().
  void copied(const void* place, double ns_per_byte) {
    ++count_;
    switch (phase_) {
      case Phase::kKeeping:
        if (count_ == kKept) go(Phase::kTiming);
        return;
      case Phase::kWarming:
        if (count_ == 1) first_ = place;
        if ((count_ > 1 && place == first_) || count_ == kMostToWarm) go(Phase::kTiming);
        return;
      case Phase::kTiming:
        least_[streams() ? 1 : 0] = std::min(least_[streams() ? 1 : 0], ns_per_byte);
        if (count_ == kTimes) timed_all();
        return;
    }
  }

  double cached() const { return least_[0]; }
  double streamed() const { return least_[1]; }

 private:
  enum class Phase : uint8_t { kKeeping, kWarming, kTiming };
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  void go(Phase phase) {
    phase_ = phase;
    count_ = 0;
    if (phase == Phase::kTiming) least_[streams() ? 1 : 0] = kNone;
  }
  void timed_all() {
    trying_other_ = !trying_other_;
    if (trying_other_) return go(Phase::kWarming);
    streams_ = least_[1] * margin_ < least_[0];
    go(Phase::kKeeping);
  }

  double margin_;
  double least_[2] = {kNone, kNone};  // ns a byte: cached, streamed
  bool streams_ = false;
  bool trying_other_ = false;
  Phase phase_ = Phase::kWarming;
  int count_ = 0;
  const void* first_ = nullptr;
};

}  // namespace rondo
