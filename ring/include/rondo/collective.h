#pragma once

#include <cstdint>

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
  kScan = 9,     // rank r gets the contributions of ranks 0 .. r, folded in this order
  kExscan = 10,  // of ranks 0 .. r - 1; rank 0 gets nothing
};
inline constexpr int kCollectives = 11;

inline constexpr const char* kCollectiveNames[kCollectives] = {
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather",
    "scatter",    "all_to_all",     "barrier",    "scan",      "exscan"};
constexpr const char* collective_name(Collective collective) {
  return static_cast<int>(collective) < kCollectives ? kCollectiveNames[static_cast<int>(collective)] : "collective?";
}

// How a collective is carried out. kAuto: the library chooses, the same on all ranks.
enum class Algorithm : uint8_t {
  kAuto = 0,
  kRing = 1,
  kDirect = 2,             // every rank sends to every rank that needs it; fewest rounds
  kRecursiveDoubling = 3,  // log2(world) exchanges of everything
  kTree = 4,               // binomial
  kHierarchical = 5,       // inside the hosts first, then between them
  kStar = 6,               // everything through rank 0, as a parameter server does
  kHalvingDoubling = 7,    // halves are exchanged, then quarters, and back (Rabenseifner)
  kDoubleTree = 8,         // two binary trees with half of the data each, pipelined
  kPat = 9,                // a tree a block, all at once, few partial folds held (parallel aggregated trees)
  // Among ranks that all share memory with one another (Topology::island):
  kWindow = 10,      // one of the three below, chosen once the ranks have exchanged where their buffers lie
  kStaged = 11,      // copied in and out of shared memory of the library
  kPull = 12,        // single copy: ranks read the others' buffers in place
  kRegistered = 13,  // buffers from Communicator::allocate(), which all ranks read and write
  kOneShot = 14,     // small: each rank posts all of its data, and reads what it needs from all posts
};
inline constexpr int kAlgorithms = 15;

inline constexpr const char* kAlgorithmNames[kAlgorithms] = {
    "auto",        "ring", "direct", "doubling", "tree", "hierarchical", "star",    "halving_doubling",
    "double_tree", "pat",  "window", "staged",   "pull", "registered",   "one_shot"};
constexpr const char* algorithm_name(Algorithm algorithm) {
  return static_cast<int>(algorithm) < kAlgorithms ? kAlgorithmNames[static_cast<int>(algorithm)] : "algorithm?";
}

}  // namespace rondo
