#include <vector>

#include "ring/plan/builders.h"
#include "ring/plan/plan_builder.h"

namespace rondo {
namespace {

// The binomial tree over ranks counted from the root: node v's parent is v without its lowest bit, and v's subtree is
// the run of ranks from v up to the next multiple of that bit.
class Binomial {
 public:
  Binomial(int world, int root, int rank) : world_(world), root_(root), node_((rank - root + world) % world) {}

  bool is_root() const { return node_ == 0; }
  int parent() const { return rank_of(node_ & (node_ - 1)); }
  // Nearest subtree first: with it, a fold goes in rank order.
  std::vector<int> children() const { return children_of(node_); }
  bool is_leaf(int rank) const { return children_of((rank - root_ + world_) % world_).empty(); }

 private:
  std::vector<int> children_of(int node) const {
    std::vector<int> ranks;
    for (int bit = 1; node + bit < world_ && (node & bit) == 0; bit *= 2) ranks.push_back(rank_of(node + bit));
    return ranks;
  }
  int rank_of(int node) const { return (node + root_) % world_; }

  int world_, root_, node_;
};

// The largest subtree has the longest way to go, so it is served first.
std::vector<Ref> to_children(const PlanBuilder& b, const Binomial& tree) {
  std::vector<Ref> refs;
  for (int child : tree.children()) refs.insert(refs.begin(), b.to(child, 0));  // the largest subtree first
  return refs;
}

// Folds the subtree in one step once all children have sent theirs: to the parent, or on the root, complete, to
// `targets`.
void fold_up(PlanBuilder& b, const Binomial& tree, const std::vector<Ref>& targets) {
  const std::vector<int> children = tree.children();
  if (children.empty()) return b.send(0, tree.parent());
  std::vector<Ref> sources(1, b.own(0));
  for (int child : children) sources.push_back(tree.is_leaf(child) ? b.from_input(child, 0) : b.from(child, 0));
  const Ref up = tree.is_root() ? Ref{} : b.to(tree.parent(), 0);
  if (tree.is_root()) return b.step(sources, targets, kFinish);
  b.step(sources, {&up, 1});
}

// Stores what the parent sends and passes it on, in one step: slices flow through without waiting for the whole
// buffer.
void spread_down(PlanBuilder& b, const Binomial& tree) {
  const Ref source = tree.is_root() ? b.input(0) : b.from(tree.parent(), 0);
  std::vector<Ref> targets = to_children(b, tree);
  targets.push_back(b.output(0));
  b.step({&source, 1}, targets);
}

// Up and down the same tree, 2 log2 N hops. The root's last fold is sent down by the step that makes it.
void all_reduce(PlanBuilder& b, const Binomial& tree) {
  std::vector<Ref> targets = to_children(b, tree);
  targets.push_back(b.output(0));
  fold_up(b, tree, targets);
  if (!tree.is_root()) spread_down(b, tree);
}

// log2 of the world, rounded up: the most peers of any node. The root has as many children; any other node has fewer,
// and a parent.
uint32_t levels(int world) {
  uint32_t n = 0;
  while ((1 << n) < world) ++n;
  return n;
}

}  // namespace

Plan build_tree(const PlanRequest& request) {
  const int world = request.topology.world();
  // An all_reduce has no root of its own: rank 0's tree serves.
  const int root = request.collective == Collective::kAllReduce ? 0 : request.root;
  const Binomial tree(world, root, request.rank);
  PlanBuilder b(request, 1, levels(world));
  switch (request.collective) {
    case Collective::kAllReduce:
      all_reduce(b, tree);
      break;
    case Collective::kReduce:
      fold_up(b, tree, {b.output(0)});
      break;
    default:
      spread_down(b, tree);
      break;
  }
  return b.take();
}

}  // namespace rondo
