#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "ring/plan/plan.h"
#include "ring/plan/values.h"

namespace rondo {

// Proves that the plans of all ranks (plans[r] is rank r's) do together what their collective promises; docs/plans.md
// says how. A failure names rank and step.
struct Verdict {
  bool ok = true;
  std::string failure;  // empty if ok
};

// Everything but progress: contributions, order of folds, scale and finish, in place and out of place; overwriting;
// mailboxes, peers, max_peers, scratch. Holds for any number of slices.
Verdict verify_values(std::span<const Plan> plans, Scaling scaling = Scaling::kAtFold, Wire wire = Wire::kPlain);

// No deadlock with up to `slices` slices a chunk over links of depth `depth`, over two rounds; blocks of equal length,
// and blocks of lengths that differ, some of them empty. Of plans that pass verify_values this holds for all lengths
// (docs/plans.md, "Progress").
Verdict verify_progress(std::span<const Plan> plans, uint32_t slices, uint32_t depth);

// Both; progress for 1 .. max_slices slices a chunk over links that hold
// Plan::chunks_in_flight chunks and a slice.
Verdict verify(std::span<const Plan> plans, Scaling scaling = Scaling::kAtFold, uint32_t max_slices = 4);

}  // namespace rondo
