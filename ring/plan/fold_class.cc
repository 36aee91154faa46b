#include "ring/plan/fold_class.h"

namespace rondo {
namespace {

// All contributions in one fold, in the order of the ranks. Such algorithms give equal bits in any world.
bool in_rank_order(Algorithm algorithm) {
  return in_island(algorithm) || algorithm == Algorithm::kDirect || algorithm == Algorithm::kStar;
}

}  // namespace

bool fold_alike(Collective collective, Algorithm a, Algorithm b, int world) {
  // Two contributions have one fold, whose order does not matter.
  if (a == b || world <= 2 || !collective_reduces(collective)) return true;
  return in_rank_order(a) && in_rank_order(b);
}

// Trees are counted from their root; a ring begins each block at another rank.
bool keeps_rank_order(Collective collective, Algorithm algorithm, int root, int world) {
  if (collective_scans(collective) || world == 1) return true;
  switch (algorithm) {
    case Algorithm::kRecursiveDoubling:
    case Algorithm::kHalvingDoubling:
      return true;
    case Algorithm::kTree:
      return collective == Collective::kAllReduce || root == 0;
    default:
      return in_rank_order(algorithm);
  }
}

}  // namespace rondo
