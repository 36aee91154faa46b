#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "transport/control/blame.h"
#include "transport/control/liveness.h"
#include "transport/control/mesh_map.h"

namespace rondo {

// What the control machines of one rank are made with. Constant.
struct ControlSettings {
  using Time = int64_t;  // milliseconds

  int rank = 0;
  std::vector<std::string> names;                         // by rank: "host b, pid 17"
  std::vector<int> neighbors;                             // ranks with a control connection to this one, ascending
  MeshMap::NeighborsOf neighbors_of = control_neighbors;  // of the others
  // A failed data link waits so long for a better reason: an abort, a goodbye, a death.
  Time link_grace_ms = 100;
  // Deaths so close together are reported as one; later ones are added to what was reported. A killed host closes the
  // connections of all its processes within a few milliseconds (loopback: under 1 ms between two processes killed by
  // one command).
  Time collect_ms = 20;
  // Reports of ended connections between others come in bursts, and are looked at together.
  Time look_ms = 5;
  // Two answers at least this far apart prove that a peer sleeps in send or recv, if no byte moved between them and its
  // thread polled in vain meanwhile. Without such a poll the thread may not have run, and its message may be complete.
  Time p2p_confirm_ms = 200;
  Liveness::Settings liveness;
  // A call that lasts so long, twice as long, ... has its cause said by one member, if it is a new one; 0: never.
  Time blame_after_ms = 0;
  // For the answers to a question.
  Time answer_ms = 100;
  // A link is said to be slow below this percentage of its best rate.
  uint64_t slow_percent = 25;
  // A stream whose opener has said goodbye comes within this time, or not at all.
  Time stream_ms = 5'000;

  std::string name(int peer) const { return rank_name(peer, names); }
  bool is_rank(int peer) const { return peer >= 0 && peer < static_cast<int>(names.size()); }
  bool is_neighbor(int peer) const { return std::binary_search(neighbors.begin(), neighbors.end(), peer); }
  bool all_are_neighbors() const { return neighbors.size() + 1 == names.size(); }
};

}  // namespace rondo
