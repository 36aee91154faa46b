#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace rondo {

// Where the ranks of a communicator live. Equal on all ranks.
struct Topology {
  std::vector<int> host;  // host[r]: index of rank r's host, 0-based in order of first appearance; size = world
  // island[r]: ranks with the same number (0-based in order of first appearance) share memory; -1: rank r shares with
  // none. Empty: no rank shares. Ranks of one island are on one host.
  std::vector<int> island{};
  // cores[r]: processor cores of rank r's host that this job's ranks there (also those outside this communicator) may
  // use together; 0, or an empty list: not known.
  std::vector<int> cores{};

  int world() const { return static_cast<int>(host.size()); }
  bool share_memory(int a, int b) const {
    return !island.empty() && island[static_cast<size_t>(a)] >= 0 &&
           island[static_cast<size_t>(a)] == island[static_cast<size_t>(b)];
  }
  // All ranks are on one host.
  bool one_host() const {
    return std::all_of(host.begin(), host.end(), [this](int h) { return h == host.front(); });
  }
  // Every rank shares memory with every other.
  bool one_island() const {
    for (int r = 1; r < world(); ++r) {
      if (!share_memory(0, r)) return false;
    }
    return world() > 1;
  }
  bool operator==(const Topology&) const = default;
};

// The place of this process in the job, as its launcher says.
struct Place {
  int rank = 0;
  int world = 1;
  int local_rank = 0;   // among the ranks of this node
  int local_world = 1;  // ranks of this node
  int node = 0;
  int nodes = 1;
};

}  // namespace rondo
