#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ring/engine/island/island_memory.h"
#include "ring/engine/observe/step_observer.h"
#include "ring/engine/run/binding.h"
#include "ring/engine/run/run.h"

namespace rondo {

// Runs a plan of Algorithm::kOneShot over a board: in each round this rank posts its data, then takes what it
// needs from the posts of the others. It moves the smallest calls, in one round. Never allocates, locks, logs
// or throws in progress().
//
// A rank is done when it has taken all it needs, though it may not have heard from every rank. So the root of
// broadcasts may be as many calls ahead as a board holds posts.
//
// Mismatches: of two ranks whose calls differ, the one that posts later sees the other's post. So every rank
// looks once at each post that it does not need before it goes on.
class OneShotRun : public Run {
 public:
  // Before the first start(). What the arguments refer to must outlive the run.
  void bind(const Binding& binding, IslandChannel& channel);
  bool ready() override { return true; }
  void start(const RunStart& start) override;
  bool progress(Pass pass) override;
  bool done() const override { return round_ == rounds_; }
  uint64_t moved() override { return moved_; }
  RunFailure failure() override { return failure_; }
  OtherOp other_op() override { return other_op_; }

  // How a block is cut into rounds, so that all that a rank posts in a round fits its place. The same on every
  // rank.
  static Slicing slicing(const Plan& plan, uint64_t block, size_t element_bytes);
  // Rooted collectives post one way, from or to the root; all others all ways.
  static PostBoard::Flow flow_of(const Plan& plan);
  // Bytes of the longest post of any rank: which memory the boards need. The same on every rank.
  static size_t longest_post(const Plan& plan, uint64_t block, size_t element_bytes);

 private:
  void bind(const Step& step);
  void begin_round();
  // The parts of a round, in this order.
  bool finds_room();
  void post();
  void observe(bool over, bool taken);
  void put(const BoundStep& step, std::byte* post, uint64_t at, uint64_t count);
  bool take(const BoundStep& step);
  // These return false where a post that is needed is not there yet, or is none of this operation (failure_).
  bool take_piece(const BoundStep& step, uint64_t count);
  bool there(int rank, uint64_t bytes);
  bool look_at_all(bool waits);
  // Keeps why the run cannot go on. progress() does nothing from then on.
  void refuse(RunFailure::Kind kind, int rank, uint64_t fingerprint = 0);
  void fold(const BoundStep& step, const void* const* from, std::span<void* const> to, uint64_t count) const;
  // Where the block of a ref lies in this round: an address in the caller's memory; bytes from the start of a
  // post.
  const std::byte* input(const Ref& ref, uint64_t at) const {
    return binding_.start.buffers.input +
           (binding_.blocks->input[ref.block].offset + begin_ + at) * binding_.element_bytes;
  }
  std::byte* output(const Ref& ref, uint64_t at) const {
    return binding_.start.buffers.output +
           (binding_.blocks->output[ref.block].offset + begin_ + at) * binding_.element_bytes;
  }
  uint64_t in_post(const Ref& ref, uint64_t at) const {
    return (places_[static_cast<size_t>(&ref - binding_.plan->refs.data())] * count_ + at) * binding_.element_bytes;
  }

  Binding binding_;
  IslandChannel* channel_ = nullptr;
  PostBoard::Flow flow_ = PostBoard::Flow::kAllWays;
  // The steps that move data, of blocks that all have one length: from the input, or from posts.
  std::vector<BoundStep> puts_, takes_;
  std::vector<uint32_t> places_;  // of posts' blocks, by ref of the plan
  std::vector<Ref> posts_read_;   // of other ranks
  std::vector<uint32_t> seen_;    // by rank: 1 + bytes of its post that are there; 0: not yet
  uint64_t block_ = 0;            // elements of every block
  uint64_t piece_ = 1;            // elements that are posted or taken at a time (kPieceBytes)
  uint64_t rounds_ = 0;
  // This round:
  uint64_t round_ = 0;
  uint64_t begin_ = 0, count_ = 0;  // elements of every block
  std::vector<size_t> post_bytes_;  // by rank
  size_t own_bytes_ = 0;            // this rank's of them
  bool posted_ = false;             // the own post is published
  size_t next_take_ = 0;            // the move of takes_ that comes next
  uint64_t taken_ = 0;              // elements of that move

  uint64_t moved_ = 0;
  StepObserver observer_;
  OtherOp other_op_;
  RunFailure failure_;  // of a rank whose post is no post of this operation: the run does not move any more
};

// A OneShotRun on the boards of the communicator's island. ready() makes and maps the memory that its posts
// need.
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
