#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ring/base/types.h"

namespace rondo {

// One way to run a call.
struct Way {
  Algorithm algorithm = Algorithm::kAuto;
  bool streamed = false;  // what other ranks read next is written past the caches (kernels/cross_copy.h)
  bool operator==(const Way&) const = default;
};

// Chooses among ways to run calls of one kind by what they cost. All ranks feed it the same costs at the same calls, so
// all choose alike. Pure logic: it reads no clock. The sender of messages feeds its own alone (p2p/message_trials.h).
//
// Trials: the calls run the ways in turn, in blocks of four, and each is timed. Of a way that cost counts which a
// quarter of its timed calls stay below. A way that never cost below 1.5 times the least is dropped. After three blocks
// of each the least wins, if it is 5 % below the way that the calls had before. Then the winner is tried with the other
// kind of stores; if that is better, all ways are tried with them. Afterwards every 64th call is timed. Trials begin
// again when eight timed calls in a row cost 1.3 times more or less than expected, or when patience ends: after 512
// calls, since the first trials find memory that no call has touched before, and then after eight times as many for
// each time that trials confirmed the choice. None begin while trials have cost more than 2 % of all.
class Trials {
 public:
  static constexpr int kBlock = 4, kBlocks = 3, kOffInARow = 8;
  static constexpr uint64_t kBetweenLooks = 64;
  // Settled calls until all ways are tried again, at first and at most. At most: a machine may change unnoticed where
  // the chosen way stays as fast and another becomes faster.
  struct Patience {
    uint64_t first = 512, last = uint64_t{1} << 18;
  };

  // ways: at least one, what the model prefers first. stores: whether ways may be tried with either kind of stores.
  enum class Stores : uint8_t { kOne, kBoth };
  Trials(std::span<const Algorithm> ways, Stores stores, bool streamed) : Trials(ways, stores, streamed, Patience{}) {}
  Trials(std::span<const Algorithm> ways, Stores stores, bool streamed, Patience limits);

  // kAll: the algorithms in turn. kStores: the winner against the other kind of stores. kSettled: a choice is made.
  // kResting: no call of the trials counted; the first way runs, untimed.
  enum class Stage : uint8_t { kAll, kStores, kSettled, kResting };
  struct Next {
    Way way;
    bool timed = false;  // its cost is to be learned
    Stage stage = Stage::kResting;
    uint32_t round = 0;  // of trials, for learn()
  };
  // How the next call runs.
  Next next() const;
  // A call took next().
  void began();
  // The next call runs as trials have settled, and its cost is not to be learned.
  bool is_settled() const { return stage_ == Stage::kSettled && !looks(); }

  // What a call took that next() had timed, in nanoseconds; nullopt: it does not count. In call order; then decide().
  void learn(const Next& call, std::optional<uint64_t> cost_ns);
  // After the costs that the ranks exchanged at once. Returns a line about a choice that was made, or "".
  std::string decide();

  // The kind of stores that proved better, once that was tried.
  std::optional<bool> streamed() const { return streamed_known_; }

 private:
  struct Entry {
    Way way;
    std::vector<uint64_t> costs_ns;
    int timed = 0;  // its costs, and those that did not count
    bool dropped = false;
    uint64_t quarter_ns() const;  // a quarter of the costs are below; UINT64_MAX: there are none
    uint64_t least_ns() const;    // requires costs
  };

  bool looks() const { return stage_calls_ % kBetweenLooks == kBetweenLooks - 1; }
  // Each of these begins a stage: learn() drops costs that belong to an earlier one (round_).
  void try_all(bool streamed);
  void try_stores(const Entry& winner);
  void settle(const Way& way, uint64_t cost_ns);
  void rest();
  std::string decide_all();
  std::string decide_stores();
  // Drops ways that are clearly slower. True if the stage is over.
  bool drop_slow();
  bool all_tried() const;
  size_t alive() const;
  const Entry* least() const;
  const Entry& winner() const;
  // Adds what the stage has cost to spent_ns_, and describes it in compared_.
  void pay();
  // Settled calls cost other than expected, or the choice is old.
  bool doubts() const { return off_ >= kOffInARow || stage_calls_ >= patience_; }
  // Trials have cost at most 2 % of all calls' time.
  bool may_try_again() const { return spent_ns_ * 50 <= calls_ * settled_ns_; }
  std::string conclude();

  const std::vector<Algorithm> ways_;
  const Stores stores_;
  const Patience limits_;
  Stage stage_ = Stage::kAll;
  uint32_t round_ = 0;          // changes with every stage
  uint64_t calls_ = 0;          // all
  uint64_t stage_calls_ = 0;    // of this stage
  std::vector<Entry> entries_;  // of this stage; what calls had before is the first
  Way settled_;
  uint64_t settled_ns_ = 0;    // expected
  bool stores_tried_ = false;  // in these trials
  std::optional<bool> streamed_known_;
  int off_ = 0;  // costs in a row far from what was expected
  uint64_t patience_ = limits_.first;
  uint64_t spent_ns_ = 0;    // by trials, beyond what the winner costs
  std::optional<Way> told_;  // by decide(): what the last trials chose
  std::string compared_;     // what the last trials found
};

}  // namespace rondo
