#pragma once

#include <cstdint>
#include <vector>

#include "ring/plan/plan.h"

namespace rondo {

// The numbers of the examples, int64. Vectors (all_reduce, reduce, broadcast, all_gather, gather): rank r has
// [r n + 1, r n + 2, ...], n elements: [1,2] [3,4] [5,6] [7,8] for two. Lists of `world` vectors: scatter's root has c
// in each element of vector c; reduce_scatter and all_to_all: element i of vector c of rank r is (r world + c) n + i
// + 1. Returns the sum of the ranks' contributions to a block of the plan.
std::vector<int64_t> example_numbers(const Plan& plan, uint32_t block, const std::vector<int>& ranks, int elements);

}  // namespace rondo
