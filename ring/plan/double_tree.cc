#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "ring/plan/builders.h"
#include "ring/plan/plan_builder.h"
#include "ring/plan/shapes.h"

namespace rondo {
namespace {

// Two binary trees, each with half of the data; a rank that passes data on in one is a leaf of the other, so that every
// port is used (Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009).
// Node 0, the root, hands both trees their data; nodes 1 .. n-1 stand in the trees by number: the node at position p,
// whose lowest bit is 2^l, has the positions p - 2^(l-1) and p + 2^(l-1) below it, or, past the end, the next there is
// with a smaller step. Odd positions are leaves. The second tree has the positions turned round (an even number of
// nodes) or moved by one (an odd number).
class BinaryTree {
 public:
  // top_: the position with the most ranks below it, the largest power of two among the positions.
  BinaryTree(int world, bool second) : last_(world - 1), second_(second) {
    while (2 * top_ <= last_) top_ *= 2;
    measure(node_of(top_), 1);
  }

  int parent(int node) const { return parents_[static_cast<size_t>(node)]; }
  const std::vector<int>& children(int node) const { return children_[static_cast<size_t>(node)]; }
  // Hops from node 0; the top of the tree has 1.
  int depth(int node) const { return depths_[static_cast<size_t>(node)]; }
  int height() const { return height_; }

 private:
  // Mirroring and moving by one both map odd positions to even ones, but for one leaf where they are odd in number.
  int node_of(int position) const {
    if (!second_) return position;
    return last_ % 2 == 0 ? last_ + 1 - position : position % last_ + 1;
  }
  void measure(int top, int depth);
  // The two children's positions; past the end of the numbering the right one moves left by halves until it exists.
  std::vector<int> below(int position) const {
    std::vector<int> list;
    int step = (position & -position) / 2;
    if (step > 0) list.push_back(position - step);
    while (step > 0 && position + step > last_) step /= 2;
    if (step > 0) list.push_back(position + step);
    return list;
  }

  int last_;
  bool second_;
  int top_ = 1, height_ = 0;
  std::vector<int> parents_, depths_;
  std::vector<std::vector<int>> children_;
};

// Walks the tree from its top, which hangs under node 0.
void BinaryTree::measure(int top, int depth) {
  const size_t nodes = static_cast<size_t>(last_) + 1;
  parents_.assign(nodes, -1);
  depths_.assign(nodes, 0);
  children_.assign(nodes, {});
  children_[0].push_back(top);
  parents_[static_cast<size_t>(top)] = 0;
  depths_[static_cast<size_t>(top)] = depth;
  std::vector<int> open(1, top_);
  while (!open.empty()) {
    const int position = open.back();
    open.pop_back();
    const size_t node = static_cast<size_t>(node_of(position));
    height_ = std::max(height_, depths_[node]);
    for (int child : below(position)) {
      const int number = node_of(child);
      children_[node].push_back(number);
      parents_[static_cast<size_t>(number)] = static_cast<int>(node);
      depths_[static_cast<size_t>(number)] = depths_[node] + 1;
      open.push_back(child);
    }
  }
}

// A block's way through one node, at a time that all nodes agree on: one hop later each time, and blocks of one tree
// two apart. So whatever a step waits for (data that comes, or room on a link, which the tree's block before has left)
// is of an earlier time, and ranks that go by the time never wait in a circle. A link may be an edge of both trees and
// then holds a block of each; where it has room for one only, the second tree waits until the first is done.
struct Visit {
  int time;
  int tree;
  int index;  // of the block in its tree
  bool up;
  bool operator<(const Visit& o) const {
    return std::tie(time, tree, up, index) < std::tie(o.time, o.tree, o.up, o.index);
  }
};

// The way of one rank through both trees: all its visits, sorted by time, become its steps.
class Traveller {
 public:
  Traveller(PlanBuilder& b, int top, const BinaryTree trees[2])
      : b_(b), trees_(trees), top_(top), node_((b.rank() - top + b.world()) % b.world()) {}

  void run(bool together) {
    const bool folds = collective_reduces(b_.collective()), spreads = b_.collective() != Collective::kReduce;
    std::vector<Visit> visits;
    for (int t = 0; t < 2; ++t) {
      const int height = trees_[t].height(), depth = trees_[t].depth(node_);
      const int turn = folds ? height : 0;  // when block 0 is complete at node 0
      const int start = together || t == 0 ? 0 : 2 * (kBlocksPerTree + trees_[0].height());
      for (int k = 0; k < kBlocksPerTree; ++k) {
        const int time = start + 2 * k;
        if (folds && (node_ > 0 || !spreads)) visits.push_back({time + height - depth, t, k, true});
        if (spreads) visits.push_back({time + turn + depth, t, k, false});
      }
    }
    std::sort(visits.begin(), visits.end());
    for (const Visit& visit : visits) {
      if (visit.up) {
        fold_up(visit);
      } else {
        spread_down(visit, folds);
      }
    }
  }

 private:
  int rank_of(int node) const { return (node + top_) % b_.world(); }
  static uint32_t block(const Visit& v) { return static_cast<uint32_t>(2 * v.index + v.tree); }

  // The contributions below this node and its own.
  std::vector<Ref> contributions(const Visit& v) const {
    const BinaryTree& tree = trees_[v.tree];
    std::vector<Ref> refs(1, b_.own(block(v)));
    for (int child : tree.children(node_)) {
      const bool leaf = tree.children(child).empty();
      refs.push_back(leaf ? b_.from_input(rank_of(child), block(v)) : b_.from(rank_of(child), block(v)));
    }
    return refs;
  }

  // A leaf's contribution travels as it is, and its parent folds it (from_input()).
  void fold_up(const Visit& v) {
    const BinaryTree& tree = trees_[v.tree];
    if (node_ > 0 && tree.children(node_).empty()) return b_.send(block(v), rank_of(tree.parent(node_)));
    const Ref target = node_ > 0 ? b_.to(rank_of(tree.parent(node_)), block(v)) : b_.output(block(v));
    b_.step(contributions(v), {&target, 1}, node_ > 0 ? uint16_t{0} : uint16_t{kFinish});
  }

  // Where the tree folds, too, the step that completes a block at node 0 sends it down as well.
  void spread_down(const Visit& v, bool folds) {
    const BinaryTree& tree = trees_[v.tree];
    std::vector<Ref> targets(1, b_.output(block(v)));
    for (int child : tree.children(node_)) targets.push_back(b_.to(rank_of(child), block(v)));
    if (node_ == 0 && folds) return b_.step(contributions(v), targets, kFinish);
    const Ref source = node_ == 0 ? b_.input(block(v)) : b_.from(rank_of(tree.parent(node_)), block(v));
    b_.step({&source, 1}, targets);
  }

  PlanBuilder& b_;
  const BinaryTree* trees_;
  int top_;   // the rank of node 0
  int node_;  // this rank
};

// The most peers of any node over both trees; a neighbor in both counts once.
uint32_t fan_of(const BinaryTree trees[2], int world) {
  size_t max_peers = 0;
  for (int node = 0; node < world; ++node) {
    std::set<int> peers;
    for (int t = 0; t < 2; ++t) {
      peers.insert(trees[t].children(node).begin(), trees[t].children(node).end());
      if (node > 0) peers.insert(trees[t].parent(node));
    }
    max_peers = std::max(max_peers, peers.size());
  }
  return static_cast<uint32_t>(max_peers);
}

}  // namespace

// Blocks 2i and 2i+1 belong to the first and the second tree. Both trees run at once where a link may hold two
// blocks.
Plan build_double_tree(const PlanRequest& request) {
  const int world = request.topology.world();
  const BinaryTree trees[2] = {{world, false}, {world, true}};
  PlanBuilder b(request, 2 * kBlocksPerTree, fan_of(trees, world));
  b.set_chunks_in_flight(std::min(request.chunks_in_flight, kTreeBlocksInFlight));
  Traveller(b, request.collective == Collective::kAllReduce ? 0 : request.root, trees)
      .run(request.chunks_in_flight > 1);
  return b.take();
}

}  // namespace rondo
