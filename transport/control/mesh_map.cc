#include "transport/control/mesh_map.h"

namespace rondo {

// A set, since distances of both directions meet: in a world of 2^n ranks half of it is one rank both ways.
std::vector<int> control_neighbors(int rank, int world) {
  std::set<int> result;
  if (world <= kMaxFullMesh) {
    for (int peer = 0; peer < world; ++peer) result.insert(peer);
  } else {
    for (int distance = 1; distance < world; distance *= 2) {
      result.insert((rank + distance) % world);
      result.insert((rank + world - distance) % world);
    }
  }
  result.erase(rank);
  return {result.begin(), result.end()};
}

// Breadth first from the connected ranks, so the first way that is found is a shortest one. Each rank inherits the
// first step of the rank by which it was found.
std::vector<int> MeshMap::next_hops(int rank, const std::vector<int>& connected) const {
  std::vector<int> next(static_cast<size_t>(world_), -1);
  std::vector<int> reached;  // in the order of their distance
  const auto reach = [&](int peer, int by) {
    if (peer == rank || gone_[static_cast<size_t>(peer)] || next[static_cast<size_t>(peer)] >= 0) return;
    next[static_cast<size_t>(peer)] = by;
    reached.push_back(peer);
  };
  for (const int peer : connected) reach(peer, peer);
  for (size_t i = 0; i < reached.size(); ++i) {
    const int from = reached[i];
    for (const int distance : distances_) {
      const int peer = (from + distance) % world_;
      if (cut_.empty() || cut_.count(std::minmax(from, peer)) == 0) reach(peer, next[static_cast<size_t>(from)]);
    }
  }
  return next;
}

}  // namespace rondo
