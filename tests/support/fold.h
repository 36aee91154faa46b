#pragma once

#include <cstdint>

#include "rondo/dtype.h"
#include "rondo/op.h"

namespace rondo::testing {

// One fold of two stored integers or bools, as docs/numerics.md defines it (an average: the sum). Of whole numbers in
// general as DType::kUint64, where they do not overflow.
uint64_t fold_integers(DType dtype, Op op, uint64_t left, uint64_t right);

bool is_logical(Op op);

}  // namespace rondo::testing
