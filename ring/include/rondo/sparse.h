#pragma once

#include <chrono>
#include <cstdint>

#include <rondo/communicator.h>
#include <rondo/export.h>

namespace rondo {

// Which elements of a tensor are sent. u: the input plus the residual.
enum class Select : uint8_t {
  kTopK = 0,       // the k = ceil(spars * count) largest |u|, exactly; of equal ones the lowest index
  kThreshold = 1,  // |u| >= spars
};

struct SparseOptions {
  Select select = Select::kTopK;
  double spars = 0.05;  // kTopK: above 0, at most 1, the same on all ranks; kThreshold: 0 or above, each rank's own
  // Error feedback: count float32, zero before the first call; what is not sent stays there, and is added to the input
  // of the next call. nullptr: it is lost. Overlaps no other buffer.
  float* residual = nullptr;
  std::chrono::milliseconds timeout{0};  // of each of the two exchanges; 0: Config::timeout_ms
};

// What one sparse_all_reduce() did on this rank.
struct SparseReport {
  uint64_t selected = 0;    // elements that this rank has sent
  uint64_t total = 0;       // of all ranks
  uint64_t bytes_sent = 0;  // by this rank for one peer: 8 a coordinate, or a bitmap and 4 an element; or dense
  bool dense = false;       // the selections were too many: an all_reduce of all elements was cheaper
};

// output[i] = sum over all ranks of their selected u[i]. input, output: count float32 (below 2^32), equal or apart. All
// ranks end with the same bits; the sum is made in rank order. residual + selected = u, exactly.
//
// Each rank selects and sends indices and values, as coordinates or, where that is shorter, a bitmap; the others add
// them up. Where the selections of all ranks together are as long as a dense all_reduce, that is made instead of them.
//
// Collective, as the calls of Communicator; blocking. kInvalid (before anything happens): spars out of range, a null or
// overlapping buffer. kMismatch: ranks have other counts; the communicator goes on. kNotFinite: some u of some rank is
// NaN or infinite, on all ranks alike; residuals are unchanged, the output is undefined, and the communicator goes on.
RONDO_EXPORT SparseReport sparse_all_reduce(Communicator& group, const float* input, float* output, uint64_t count,
                                            const SparseOptions& options = {});

}  // namespace rondo
