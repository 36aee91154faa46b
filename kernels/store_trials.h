#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace rondo {

// Whether copies of about one size, to memory that another core reads next, go through the caches or past them
// (cross_copy.h): both ways are timed, and again after some thousand copies, since which is faster changes while a
// program runs. Pure logic; one thread at a time.
class StoreTrials {
 public:
  // Of a way: the least of so many times counts, since any may be disturbed.
  static constexpr int kTimes = 5;
  // Before a way is timed its copies must find the memory as that way left it: until they come to the first place
  // again, or so many.
  static constexpr int kMostToWarm = 64;
  // Copies between trials. The slower way takes up to ten times as long, and some ten copies a trial.
  static constexpr int kKept = 2048;

  // margin: streamed stores must be so many times as fast to be taken.
  explicit StoreTrials(double margin) : margin_(margin) {}

  // What the next copy is to be.
  bool streams() const { return trying_other_ ? !streams_ : streams_; }
  bool timed() const { return phase_ == Phase::kTiming; }

  // It is done; to a place named by `place`, if timed at ns_per_byte.
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
