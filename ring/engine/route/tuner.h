#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ring/engine/route/route.h"
#include "ring/engine/route/trials.h"

namespace rondo {

// When a call began and ended on one rank: nanoseconds of CLOCK_MONOTONIC, which the processes of a host share. end 0:
// the time does not count, since the call waited behind another.
struct TimedCall {
  uint64_t begin_ns = 0, end_ns = 0;
};
// What each rank gives in one exchange: its times of the calls that Tuner has pending, in call order.
constexpr size_t kTimedCalls = 16;
using TimeRecord = std::array<TimedCall, kTimedCalls>;

// What one call cost all of them; nullopt: it does not count on some rank. Inside a host the time from the last begin
// to the last end, in which the ranks' different arrivals are not contained; between hosts, whose clocks differ, the
// shortest time of a rank.
enum class Clocks : uint8_t { kOne, kOfHosts };
std::optional<uint64_t> cost_ns(std::span<const TimedCall> ranks, Clocks clocks);

// What calls have in common that are timed as one kind.
struct TunerKey {
  Collective collective = Collective::kAllReduce;
  int log2_bytes = 0;
  int root = -1;
  int element_bytes = 0;
  Alternatives ways = {};  // a call that asks for windows has others than one that asks for nothing
  auto operator<=>(const TunerKey&) const = default;
};

// The trials of one kind of calls.
struct TunedKind {
  Trials trials;
  uint64_t called = 0;  // number of its last call
};

// The trials of one communicator, by kind of calls. What it decides is a function of the calls that began, in call
// order, and of the records that all ranks exchanged: so it is the same on all ranks.
class Tuner {
 public:
  // How a call of this kind runs next. ways: at least one; equal for all calls of the kind.
  Trials::Next next(const TunerKey& key, std::span<const Algorithm> ways, Trials::Stores stores) const;
  // A call took that. Its time, if next() wants it, is to be recorded as the last of those pending(). Returns its kind,
  // which stays in its place as long as changes().
  TunedKind& began(const TunerKey& key, std::span<const Algorithm> ways, Trials::Stores stores);
  // Likewise, where its trials say is_settled().
  void began(TunedKind& kind) {
    kind.trials.began();
    kind.called = ++calls_;
  }

  // Timed calls whose times have not been exchanged yet: kTimedCalls at most, then the records are to be exchanged.
  size_t pending() const { return pending_.size(); }
  bool due() const { return pending_.size() == kTimedCalls; }
  // ranks[r]: the record of rank r. Returns lines to be logged.
  std::vector<std::string> learn(std::span<const TimeRecord> ranks, Clocks clocks);

  // The kind of stores that proved better in the last trials of them.
  bool streamed() const { return streamed_; }
  // Grows when anything but calls that began has changed what is known here, or a kind was forgotten.
  uint64_t changes() const { return changes_; }
  // This algorithm does not work here: all trials begin again.
  void begin_again();

 private:
  // Kinds of calls; of more, the one that was called the longest ago gives way.
  static constexpr size_t kMostKinds = 256;
  struct Pending {
    TunerKey key;
    Trials::Next call;
  };
  // Forgets the kind that was called the longest ago. Pointers to it are void from then on, as changes() says.
  void make_room();

  std::map<TunerKey, TunedKind> kinds_;
  // In call order; the i-th of every rank's TimeRecord is of the i-th entry.
  std::vector<Pending> pending_;
  uint64_t calls_ = 0, changes_ = 0;
  bool streamed_ = false;
};

}  // namespace rondo
