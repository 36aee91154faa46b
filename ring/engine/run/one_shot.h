#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ring/engine/island/island_memory.h"
#include "ring/engine/observe/lane_observer.h"
#include "ring/engine/run/binding.h"
#include "ring/engine/run/run.h"

namespace rondo {

// Runs a plan of Algorithm::kOneShot over a board: round by round, what this rank posts, then what it takes. Never
// allocates, locks, logs or throws in progress().
//
// A rank that has taken all it needs is done, though it may not have heard from all others: so the root of broadcasts
// may be as many calls ahead as a board holds posts. Of two ranks whose calls differ the one that posts later sees the
// other's post: every rank looks once at those it has not heard from before it goes on.
class OneShotRun : public Run {
 public:
  // Before the first start(). What they refer to must stay as long as the run.
  void bind(const Binding& binding, IslandChannel& channel);
  bool ready() override { return true; }
  void start(const RunStart& start) override;
  bool progress(Pass pass) override;
  bool done() const override { return round_ == rounds_; }
  uint64_t moved() override { return moved_; }
  RunFailure failure() override { return failure_; }

  // Elements of a block that one round takes, so that all that a rank posts fits its place. The same on every rank.
  static Slicing slicing(const Plan& plan, uint64_t block, size_t element_bytes);
  static PostBoard::Flow flow_of(const Plan& plan);
  // Bytes of the longest post of any rank. The same on every rank.
  static size_t longest_post(const Plan& plan, uint64_t block, size_t element_bytes);
  // Whether a step writes or reads a post there: this rank's, or another's.
  static bool is_post(const Ref& ref) { return ref.space == Space::kWindow && (ref.flags & kTurns) != 0; }

 private:
  // A step that moves data, of a block that is as long as every other.
  struct Move {
    const Ref* sources = nullptr;
    uint64_t scaled = 0;  // CombineMove::scaled
    uint64_t input = 0;   // elements: the block in the caller's input
    uint64_t output = 0;  // elements: the block in the output
    uint32_t place = 0;   // of a put: in the own post
    uint32_t first = 0;   // of a take: index into places_
    uint8_t count = 1;    // sources
    bool posts = false;   // of a put: to the own post
    bool stores = false;  // to the output
    bool finish = false;
    bool copies = false;  // bytes move as they are
  };

  void bind(const Step& step);
  void bind_scales(const Step& step, Move& move) const;
  void begin_round();
  bool finds_room();
  void post();
  void observe(bool over, bool taken);
  void put(const Move& move, std::byte* place, uint64_t at, uint64_t count);
  bool take(const Move& move);
  bool take_piece(const Move& move, uint64_t count);
  bool there(int rank, uint64_t bytes);
  bool look_at_all(bool waits);
  void refuse(RunFailure::Kind kind, int rank, uint64_t fingerprint = 0);
  void fold(const Move& move, const void* const* from, std::span<void* const> to, uint64_t count) const;
  std::byte* input(const Move& move, uint64_t at) const {
    return const_cast<std::byte*>(binding_.input) + (move.input + begin_ + at) * binding_.element_bytes;  // only read
  }
  std::byte* output(const Move& move, uint64_t at) const {
    return binding_.output + (move.output + begin_ + at) * binding_.element_bytes;
  }

  Binding binding_;
  IslandChannel* channel_ = nullptr;
  std::vector<Move> puts_, takes_;
  std::vector<uint32_t> places_;  // of takes' sources in their ranks' posts
  std::vector<Ref> posts_read_;   // likewise; those of other ranks
  std::vector<uint32_t> seen_;    // by rank: 1 + bytes of its post that are there; 0: not yet
  uint64_t block_ = 0;            // elements of every block
  uint64_t piece_ = 1;            // elements that are posted, or taken, at a time
  uint64_t rounds_ = 0;
  // This round:
  uint64_t round_ = 0;
  uint64_t begin_ = 0, count_ = 0;  // elements of every block
  std::vector<size_t> post_bytes_;  // by rank
  size_t own_bytes_ = 0;            // this rank's of them
  bool posted_ = false;
  size_t next_take_ = 0;
  uint64_t taken_ = 0;  // elements of that move

  uint64_t moved_ = 0;
  LaneObserver observer_;
  RunFailure failure_;  // of a rank whose post is no post of this operation: the run does not move any more
};

// On the island's boards.
class BoardRun final : public OneShotRun {
 public:
  // `call` and `island` must outlive it.
  BoardRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, IslandMemory& island)
      : call_(call), plan_(std::move(plan)), island_(island) {}
  bool ready() override { return bound_ || attach(); }

 private:
  bool attach();

  const CheckedCall& call_;
  const std::shared_ptr<const Plan> plan_;  // shared with the cache
  IslandMemory& island_;
  Blocks blocks_;
  bool bound_ = false;
};

}  // namespace rondo
