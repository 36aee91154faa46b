#pragma once

#include <cstdint>
#include <vector>

#include "kernels/combine.h"
#include "tests/support/element.h"
#include "tests/support/fold.h"

namespace rondo::testing {

// What combine() gives for one element, in plain code. Elements are stored bits (element.h).
uint64_t reference_combine(const CombineSpec& spec, const std::vector<uint64_t>& sources, uint64_t scaled, bool finish);

}  // namespace rondo::testing
