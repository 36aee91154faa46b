#pragma once

#include <cstdint>
#include <vector>

#include "ring/compress/compound_call.h"
#include "ring/compress/selection.h"
#include "rondo/sparse.h"

namespace rondo {

// The route that sends least by what all ranks know: how many elements each has selected of `count`. Merging is judged
// as if the selections were independent of each other; real ones overlap more, which favors merging. Pure; the same
// on every rank.
SparseRoute cheapest_route(const std::vector<uint64_t>& selected, uint64_t count);

// One call, after the ranks have exchanged how many elements each has selected.
struct SparseCall {
  const CompoundCall& group;
  const Contribution& u;
  const Selection& own;
  const std::vector<uint64_t>& selected;  // by rank
  float* output;                          // u.count elements; may be u.input
  float* residual;                        // becomes u less the selection; nullptr: none
  CallOptions options;
};
// The sums into output. Returns the bytes that this rank's contribution took, for SparseReport.
uint64_t run_gathered(const SparseCall& call);
uint64_t run_merged(const SparseCall& call);
uint64_t run_dense(const SparseCall& call);

}  // namespace rondo
