#include <algorithm>
#include <set>
#include <vector>

#include "ring/plan/builders.h"
#include "ring/plan/plan_builder.h"
#include "ring/plan/shapes.h"

namespace rondo {
namespace {

// Parallel aggregated trees (Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale",
// 2025). Every block has a binomial tree, with its rank as root: rank root + v is at position v, and below v without
// its lowest bit. All trees are walked at once: in one move every rank sends at one distance and receives from as far,
// for up to `chunks_in_flight` positions. The far edges come first, one, two, four, .. blocks a move; then the blocks
// are as many as a move carries, and the trees below them are walked in order of position, depth first, so that a fold
// meets its children one after another and few are open at a time.
struct Move {
  int distance;
  std::vector<int> positions;  // below; their parents are `distance` before them
};

std::vector<Move> moves_of(int world, int chunks_in_flight) {
  std::vector<Move> moves;
  each_pat_move(world, chunks_in_flight, [&](const PatMove& shape) {
    Move move{shape.distance, {}};
    for (int v = shape.first; v < world; v += shape.stride) move.positions.push_back(v);
    moves.push_back(std::move(move));
  });
  return moves;
}

// One rank's part in all trees at once. Ranks differ only in which block is at which position, so the moves are the
// same on every rank and both ends of a link agree on the order of blocks.
class Trees {
 public:
  Trees(int world, int rank, int chunks_in_flight)
      : world_(world), rank_(rank), moves_(moves_of(world, chunks_in_flight)) {
    for (const Move& move : moves_) together_ = std::max(together_, static_cast<int>(move.positions.size()));
  }

  int together() const { return together_; }

  // Forwards: a block that has come is in the output, and is sent on from there.
  void all_gather(PlanBuilder& b) const {
    for (const Move& move : moves_) {
      for (int v : move.positions) {
        const uint32_t c = block(v - move.distance);
        if (&move == &moves_.front()) {
          b.copy_send(c, at(move.distance));
        } else {
          b.step({b.output(c)}, {b.to(at(move.distance), c)});
        }
      }
      for (int v : move.positions) b.recv_copy(block(v), at(-move.distance));
    }
  }

  // Backwards: what a position has folded goes up, together with the last fold if it is next to go. Then the fold is
  // sent from the link's slot and never stored; `sent` marks those. Otherwise it waits in scratch memory for its
  // siblings.
  void reduce_scatter(PlanBuilder& b) const {
    std::vector<char> folded(static_cast<size_t>(world_)), sent(static_cast<size_t>(world_));
    for (size_t m = moves_.size(); m-- > 0;) {
      const Move& move = moves_[m];
      for (int v : move.positions) {
        if (sent[static_cast<size_t>(v)]) continue;
        const uint32_t c = block(v);
        b.step({folded[static_cast<size_t>(v)] ? b.scratch(0, c) : b.input(c)}, {b.to(at(-move.distance), c)});
      }
      for (int v : move.positions) {
        const int parent = v - move.distance;
        const uint32_t c = block(parent);
        const Ref arriving = leaf(v) ? b.from_input(at(move.distance), c) : b.from(at(move.distance), c);
        const Ref held = folded[static_cast<size_t>(parent)] ? b.scratch(0, c) : b.own(c);
        folded[static_cast<size_t>(parent)] = true;
        if (parent == 0 && m == 0) {
          b.step({arriving, held}, {b.output(c)}, kFinish);
        } else if (m > 0 && contains(moves_[m - 1], parent)) {
          b.step({arriving, held}, {b.to(at(-moves_[m - 1].distance), c)});
          sent[static_cast<size_t>(parent)] = true;
        } else {
          b.step({arriving, held}, {b.scratch(0, c)});
        }
      }
    }
  }

 private:
  // The rank at this distance; it may be negative.
  int at(int distance) const { return ((rank_ + distance) % world_ + world_) % world_; }
  // The block in whose tree this rank is at position v.
  uint32_t block(int v) const { return static_cast<uint32_t>(at(-v)); }
  // A leaf sends its contribution as it is; everything else that arrives is a fold.
  bool leaf(int v) const { return v % 2 == 1 || v + 1 >= world_; }
  static bool contains(const Move& move, int v) {
    return std::binary_search(move.positions.begin(), move.positions.end(), v);
  }

  int world_, rank_;
  std::vector<Move> moves_;
  int together_ = 1;
};

// Peers at the distances 2^k on both sides, which may be the same rank.
uint32_t fan_of(int world) {
  std::set<int> peers;
  for (int distance = 1; distance < world; distance *= 2) peers.insert({distance, world - distance});
  return static_cast<uint32_t>(peers.size());
}

}  // namespace

Plan build_pat(const PlanRequest& request) {
  const int world = request.topology.world();
  const Trees trees(world, request.rank, request.chunks_in_flight);
  PlanBuilder b(request, static_cast<uint32_t>(world), fan_of(world));
  b.set_chunks_in_flight(trees.together());
  if (request.collective == Collective::kAllGather) {
    trees.all_gather(b);
  } else {
    trees.reduce_scatter(b);
  }
  return b.take();
}

}  // namespace rondo
