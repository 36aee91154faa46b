#pragma once

#include "kernels/combine.h"
#include "kernels/kernel_table.h"

namespace rondo {

// What a move does to its elements: the same on processors and GPUs.
struct ResolvedMove {
  bool copies = false;  // one source, unchanged; fold is not set
  Fold fold = Fold::kSum;
  uint64_t scaled = 0;  // of the sources that there are
};

// Requires a source.
ResolvedMove resolve(const CombineSpec& spec, const CombineMove& move);

}  // namespace rondo
