#pragma once

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace rondo {

// Up to this world every pair has a control connection: 2016 in the job, 63 descriptors a rank.
inline constexpr int kMaxFullMesh = 64;
// Ranks with a control connection to `rank`, ascending: all, or in larger worlds those at distance 2^i.
std::vector<int> control_neighbors(int rank, int world);

// Which ranks can be reached over the control connections of all, as far as is known, and by which way. A value.
class MeshMap {
 public:
  // Alike for every rank: the neighbors of `rank` are those of rank 0, each `rank` further on the circle.
  using NeighborsOf = std::vector<int> (*)(int rank, int world);
  explicit MeshMap(int world, NeighborsOf neighbors_of = control_neighbors)
      : world_(world), distances_(neighbors_of(0, world)), gone_(static_cast<size_t>(world)) {}

  // That rank passes nothing on any more.
  void forget(int rank) { gone_[static_cast<size_t>(rank)] = true; }
  // Those two have no connection to each other any more. False: this was known.
  bool cut(int one, int other) { return cut_.insert(std::minmax(one, other)).second; }
  // By destination, the connected rank that is next on the shortest way from `rank`; -1: there is none.
  std::vector<int> next_hops(int rank, const std::vector<int>& connected) const;

 private:
  int world_;
  std::vector<int> distances_;  // from a rank to its neighbors, upwards
  std::vector<bool> gone_;
  std::set<std::pair<int, int>> cut_;  // the lower one first
};

}  // namespace rondo
