#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include <rondo/communicator.h>
#include <rondo/export.h>

#if __cplusplus >= 202002L  // else <rondo/communicator.h> has refused

namespace rondo {

// Which elements of a tensor are sent. u: the input plus the residual.
enum class Select : uint8_t {
  kTopK = 0,       // the k = ceil(spars * count) largest |u|, exactly; of equal ones the lowest index
  kThreshold = 1,  // |u| >= spars
};

struct SparseOptions {
  Select select = Select::kTopK;
  // kTopK: above 0, at most 1, the same on all ranks; kThreshold: 0 or above, each rank's own.
  double spars = 0.05;
  // Error feedback: count float32, zero before the first call; what is not sent stays there, and is added to the input
  // of the next call. nullptr: it is lost. Overlaps no other buffer.
  float* residual = nullptr;
  // Lengths of tensors that lie in the buffer one after the other, count together: k is chosen, and counted, for each.
  // Read during the call only. Empty: the buffer is one tensor.
  std::span<const uint64_t> tensors = {};
  std::chrono::milliseconds timeout{0};  // of each exchange; 0: Config::timeout_ms
};

// How the selections of all ranks became one sum.
enum class SparseRoute : uint8_t {
  kGathered = 0,  // every rank got every selection, and added them up
  kMerged = 1,    // the owner of a range of elements added up the selections in it, and every rank got the sums
  kDense = 2,     // all_reduce of all elements
};

// What one sparse_all_reduce() did on this rank.
struct SparseReport {
  uint64_t selected = 0;    // elements that this rank has sent
  uint64_t total = 0;       // of all ranks
  uint64_t bytes_sent = 0;  // what this rank has contributed, counted for each rank that got it
  SparseRoute route = SparseRoute::kGathered;
};

// output[i] = sum over all ranks of their selected u[i]. input, output: count float32 (below 2^32), equal or apart. All
// ranks end with the same bits; kGathered and kMerged add in rank order, and so give the same ones.
// residual + selected = u, exactly. A sum beyond the range of float32 is infinite, on all ranks.
//
// Selections travel as indices and values, or, where that is shorter, as a bitmap and values, or as all elements. Of
// the three routes the ranks take the one that sends least: few selections are gathered; many of several ranks are
// merged; where that fills up, all elements are reduced.
//
// Collective, as the calls of Communicator; blocking. kInvalid (before anything happens): spars out of range, a null or
// overlapping buffer, tensors of other lengths together, a batch of this thread. kMismatch: ranks have other counts;
// the communicator goes on. kCorrupt: a rank sends what no selection is. kNotFinite: some u of some rank is NaN or
// infinite, on all ranks alike; input, output and residual are unchanged, and the communicator goes on.
RONDO_EXPORT SparseReport sparse_all_reduce(Communicator& group, const float* input, float* output, uint64_t count,
                                            const SparseOptions& options = {});

}  // namespace rondo

#endif  // C++20
