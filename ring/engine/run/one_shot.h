#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ring/engine/observe/lane_observer.h"
#include "ring/engine/run/binding.h"
#include "ring/engine/run/island_channel.h"

namespace rondo {

// Runs a plan of Algorithm::kOneShot over a board: round by round, what this rank posts, then what it takes. As
// LaneRun: never blocks, allocates, locks, logs or throws in progress(). One thread at a time.
//
// A rank that has taken all it needs is done, though it may not have heard from all others: so the root of broadcasts
// may be as many calls ahead as a board holds posts. Of two ranks whose calls differ the one that posts later sees the
// other's post: every rank looks once at those it has not heard from before it goes on.
class OneShotRun {
 public:
  // `binding` and `channel` must stay until the run is done or abandoned.
  void start(const Binding& binding, IslandChannel& channel);
  // Starts the same call once more, but for the buffers and its place among the calls.
  void start_again(const std::byte* input, std::byte* output, uint64_t sequence, uint64_t fingerprint);

  // Elements of a block that one round takes, so that all that a rank posts fits its place. The same on every rank.
  static Slicing slicing(const Plan& plan, uint64_t block, size_t element_bytes);
  // Bytes of the longest post of `rank`. The same on every rank.
  static size_t longest_post(const Plan& plan, int rank, uint64_t block, size_t element_bytes);
  // Whether a step writes or reads a post there: this rank's, or another's.
  static bool is_post(const Ref& ref) { return ref.space == Space::kWindow && (ref.flags & kTurns) != 0; }

  bool progress();
  bool done() const { return round_ == rounds_; }
  uint64_t moved() const { return moved_; }

  // A rank whose post is no post of this operation; -1 if none. The run does not move any more.
  int refused() const { return refused_; }
  // Another fingerprint (else: the memory is corrupt).
  bool mismatched() const { return mismatched_; }
  uint64_t fingerprint_seen() const { return fingerprint_seen_; }

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
  size_t post_bytes(int rank) const { return post_bytes_[static_cast<size_t>(rank)]; }
  void begin_round();
  bool finds_room();
  void post();
  void observe(bool over, bool taken);
  void put(const Move& move, std::byte* place, uint64_t at, uint64_t count);
  bool take(const Move& move);
  bool take_piece(const Move& move, uint64_t count);
  bool there(int rank, uint64_t bytes);
  bool look_at_all(bool waits);
  void fold(const Move& move, const void* const* from, void* to, uint64_t count) const;
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
  bool posted_ = false;
  size_t next_take_ = 0;
  uint64_t taken_ = 0;  // elements of that move

  uint64_t moved_ = 0;
  LaneObserver observer_;
  int refused_ = -1;
  bool mismatched_ = false;
  uint64_t fingerprint_seen_ = 0;
};

}  // namespace rondo
