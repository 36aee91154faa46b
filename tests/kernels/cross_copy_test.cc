#include "kernels/cross_copy.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "kernels/store_trials.h"

namespace rondo {
namespace {

// A machine on which copies take so long, to places that are used in turn. Each place remembers how it was written
// last: a cached store to a place that was streamed fetches it first.
class Machine {
 public:
  Machine(double cached, double streamed, int places) : cached_(cached), streamed_(streamed), memory_(places) {}

  void set(double cached, double streamed) { cached_ = cached, streamed_ = streamed; }
  void disturb(int copies) { disturbed_ = copies; }

  void run(StoreTrials& trials, int copies) {
    for (int i = 0; i < copies; ++i) {
      Place& place = memory_[next_];
      next_ = (next_ + 1) % memory_.size();
      const bool streams = trials.streams();
      double took = streams ? streamed_ : cached_;
      if (!streams && place.streamed) took *= 100;
      if (trials.timed() && disturbed_-- > 0) took *= 1000;
      place.streamed = streams;
      streamed_copies_ += streams ? 1 : 0;
      trials.copied(&place, took);
    }
  }
  int streamed_copies() const { return streamed_copies_; }

 private:
  struct Place {
    bool streamed = false;
  };
  double cached_, streamed_;
  std::vector<Place> memory_;
  size_t next_ = 0;
  int disturbed_ = 0;
  int streamed_copies_ = 0;
};

constexpr double kMargin = 3;
// More than both trials take, and less than the time to the next.
constexpr int kSettled = 200;

}  // namespace

TEST_CASE("trials: cached stores are kept where streamed ones are faster by less than the margin") {
  StoreTrials trials(kMargin);
  Machine machine(1.0, 0.4, 8);
  machine.run(trials, kSettled);
  CHECK(!trials.streams());
  CHECK(machine.streamed_copies() > 0);
  CHECK(trials.cached() == 1.0);
  CHECK(trials.streamed() == 0.4);
}

TEST_CASE("trials: streamed stores are taken where they are faster by more") {
  StoreTrials trials(kMargin);
  Machine machine(1.0, 0.3, 8);
  machine.run(trials, kSettled);
  CHECK(trials.streams());
}

TEST_CASE("trials: all but one of the times of a way may be disturbed") {
  for (const bool streams : {false, true}) {
    StoreTrials trials(kMargin);
    Machine machine(1.0, streams ? 0.3 : 0.4, 8);
    machine.disturb(StoreTrials::kTimes - 1);
    machine.run(trials, kSettled);
    CHECK(trials.streams() == streams);
  }
}

TEST_CASE("trials: they come again, and the choice follows the machine both ways") {
  // Proves: cached stores are timed on memory that cached stores have left, though streamed ones wrote it last.
  StoreTrials trials(kMargin);
  Machine machine(1.0, 0.4, 8);
  machine.run(trials, kSettled);
  CHECK(!trials.streams());
  machine.set(4.0, 0.4);
  machine.run(trials, StoreTrials::kKept + kSettled);
  CHECK(trials.streams());
  machine.set(1.0, 0.4);
  machine.run(trials, StoreTrials::kKept + kSettled);
  CHECK(!trials.streams());
}

TEST_CASE("trials: the way that loses is rare") {
  StoreTrials trials(kMargin);
  Machine machine(1.0, 0.4, 8);
  constexpr int kPeriods = 10;
  machine.run(trials, kPeriods * StoreTrials::kKept);
  CHECK(machine.streamed_copies() >= (kPeriods - 1) * StoreTrials::kTimes);
  CHECK(machine.streamed_copies() < kPeriods * 20);
}

TEST_CASE("trials: memory without an end is no reason to wait for the first place") {
  StoreTrials trials(kMargin);
  Machine machine(1.0, 0.3, 100'000);
  machine.run(trials, kSettled);
  CHECK(trials.streams());
}

TEST_CASE("cross copy: every byte, by whatever stores, and none beside it") {
  constexpr size_t kGuard = 64;
  std::vector<unsigned char> source(70'000);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(i * 131 + 7);
  for (const char* name : {"auto", "cached", "streamed"}) {
    CAPTURE(name);
    CrossCopy cross(stores_of(name));
    for (const size_t bytes : {size_t{0}, size_t{1}, CrossCopy::kFewest - 1, CrossCopy::kFewest, size_t{65'537}}) {
      for (const size_t offset : {0, 3, 32}) {
        std::vector<unsigned char> target(bytes + offset + 2 * kGuard, 0xee);
        std::vector<unsigned char> expected = target;
        std::memcpy(expected.data() + kGuard + offset, source.data(), bytes);
        cross.copy(target.data() + kGuard + offset, source.data(), bytes);
        CHECK(target == expected);
      }
    }
    CHECK(!cross.streams(CrossCopy::kFewest - 1));
    if (name != std::string_view("auto")) {
      CHECK(cross.streams(CrossCopy::kFewest) == (name == std::string_view("streamed")));
      CHECK(cross.streams(size_t{1} << 40) == (name == std::string_view("streamed")));
    }
  }
}

TEST_CASE("cross copy: times itself, each power of two for itself") {
  // Proves: copy() tells the trials of its size; after some copies both ways have been timed.
  CrossCopy cross;
  std::vector<unsigned char> source(2 * CrossCopy::kFewest), target(source.size());
  int streamed = 0;
  for (int i = 0; i < kSettled; ++i) {
    streamed += cross.streams(CrossCopy::kFewest) ? 1 : 0;
    CHECK(!cross.streams(2 * CrossCopy::kFewest));
    cross.copy(target.data(), source.data(), CrossCopy::kFewest);
  }
  CHECK(streamed >= StoreTrials::kTimes);
}

}  // namespace rondo
