#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rondo {

// Values are on the wire (fingerprints): never renumber, only append.
enum class Collective : uint8_t {
  kAllReduce = 0,
  kReduceScatter = 1,
  kAllGather = 2,
  kBroadcast = 3,
  kReduce = 4,
  kGather = 5,
  kScatter = 6,
  kAllToAll = 7,
  kBarrier = 8,
};
inline constexpr int kCollectives = 9;

constexpr const char* collective_name(Collective collective) {
  constexpr const char* kNames[kCollectives] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce",
                                                "gather",     "scatter",        "all_to_all", "barrier"};
  return static_cast<int>(collective) < kCollectives ? kNames[static_cast<int>(collective)] : "collective?";
}

constexpr bool collective_reduces(Collective c) {
  return c == Collective::kAllReduce || c == Collective::kReduceScatter || c == Collective::kReduce;
}
constexpr bool collective_has_root(Collective c) {
  return c == Collective::kBroadcast || c == Collective::kReduce || c == Collective::kGather ||
         c == Collective::kScatter;
}

enum class Algorithm : uint8_t {
  kAuto = 0,
  kRing = 1,
  kDirect = 2,             // every rank sends to every rank that needs it; fewest rounds
  kRecursiveDoubling = 3,  // log2(world) exchanges of everything
  kTree = 4,               // binomial
  kHierarchical = 5,       // inside the hosts first, then between them
  kStar = 6,               // a parameter server: everything through the root; for comparison
  kHalvingDoubling = 7,    // halves are exchanged, then quarters, and back (Rabenseifner)
  kDoubleTree = 8,         // two binary trees with half of the data each, pipelined
  kPat = 9,                // a tree a block, all at once, few partial folds held (parallel aggregated trees)
  kSwing = 10,             // halving and doubling between ranks that lie near on a ring
  // Inside one island (Topology), through memory that all ranks reach:
  kWindow = 11,      // one of those below, settled when the ranks have told where their buffers lie
  kStaged = 12,      // through memory of the library
  kPull = 13,        // the others' buffers are read where they lie
  kRegistered = 14,  // buffers from Communicator::allocate(), read and written by all
  kOneShot = 15,     // small: each rank posts all it has, and takes what it needs from all posts
};
inline constexpr int kAlgorithms = 16;

constexpr const char* algorithm_name(Algorithm algorithm) {
  constexpr const char* kNames[kAlgorithms] = {
      "auto",        "ring", "direct", "doubling", "tree",   "hierarchical", "star",       "halving_doubling",
      "double_tree", "pat",  "swing",  "window",   "staged", "pull",         "registered", "one_shot"};
  return static_cast<int>(algorithm) < kAlgorithms ? kNames[static_cast<int>(algorithm)] : "algorithm?";
}

// Algorithms that work on windows in the callers' memory or the library's, after a meeting.
constexpr bool over_windows(Algorithm algorithm) {
  return algorithm == Algorithm::kWindow || algorithm == Algorithm::kStaged || algorithm == Algorithm::kPull ||
         algorithm == Algorithm::kRegistered;
}

// Algorithms that need one island, and equal counts.
constexpr bool in_island(Algorithm algorithm) { return over_windows(algorithm) || algorithm == Algorithm::kOneShot; }

// Where the ranks of a group live. Equal on all ranks, so that a plan may depend on it.
struct Topology {
  std::vector<int> host;  // host[r]: index of rank r's host, 0-based in order of first appearance; size = world
  // island[r]: ranks with the same number (0-based in order of first appearance) share memory; -1: rank r with nobody.
  // Empty: nobody shares. Ranks of one island are on one host.
  std::vector<int> island{};
  // cores[r]: processor cores that the ranks of r's host (all of a job, not only a group's) have between them; 0, or an
  // empty list: not known.
  std::vector<int> cores{};

  // r's host has fewer cores than `ranks`.
  bool crowded(int r, int ranks) const {
    return !cores.empty() && cores[static_cast<size_t>(r)] > 0 && cores[static_cast<size_t>(r)] < ranks;
  }
  // Cores beyond the first for each of `ranks` on r's host; 0 where that is not known.
  int spare_cores(int r, int ranks) const {
    return cores.empty() || ranks < 1 ? 0 : std::max(0, cores[static_cast<size_t>(r)] / ranks - 1);
  }
  int world() const { return static_cast<int>(host.size()); }
  bool share_memory(int a, int b) const {
    return !island.empty() && island[static_cast<size_t>(a)] >= 0 &&
           island[static_cast<size_t>(a)] == island[static_cast<size_t>(b)];
  }
  // All ranks are on one host.
  bool one_host() const {
    return std::all_of(host.begin(), host.end(), [this](int h) { return h == host.front(); });
  }
  // The same, and they speak by sockets.
  bool loopback() const { return one_host() && !one_island(); }
  // Every rank shares memory with every other.
  bool one_island() const {
    for (int r = 1; r < world(); ++r) {
      if (!share_memory(0, r)) return false;
    }
    return world() > 1;
  }
  bool operator==(const Topology&) const = default;
};

// Facts about the process's place, from the launcher.
struct Place {
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  int local_world = 1;
  int node = 0;
  int nodes = 1;
};

}  // namespace rondo
