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
  using NeighborsOf = std::vector<int> (*)(int rank, int world);
  explicit MeshMap(int world, NeighborsOf neighbors_of = control_neighbors)
      : world_(world), neighbors_of_(neighbors_of), gone_(static_cast<size_t>(world)) {}

  // That rank passes nothing on any more.
  void forget(int rank) { gone_[static_cast<size_t>(rank)] = true; }
  // Those two have no connection to each other any more. False: this was known.
  bool cut(int one, int other) { return cut_.insert(std::minmax(one, other)).second; }
  // By destination, the connected rank that is next on the shortest way from `rank`; -1: there is none.
  std::vector<int> next_hops(int rank, const std::vector<int>& connected) const;

 private:
  int world_;
  NeighborsOf neighbors_of_;
  std::vector<bool> gone_;
  std::set<std::pair<int, int>> cut_;  // the lower one first
};

}  // namespace rondo
