#pragma once

#include <cstdint>
#include <vector>

#include "kernels/combine.h"
#include "tests/support/element.h"

namespace rondo::testing {

// What combine() gives for one element, in plain code. Elements are stored bits (element.h).
uint64_t reference_combine(const CombineSpec& spec, const std::vector<uint64_t>& sources, uint64_t scaled, bool finish);

// One fold of two integers or bools; of whole numbers in general as DType::kUint64, where no dtype would overflow.
uint64_t fold_integers(DType dtype, Op op, uint64_t left, uint64_t right);

bool is_logical(Op op);

}  // namespace rondo::testing
