#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "bench/loop/pattern.h"

namespace rondo::bench {

// Writes `region` into a buffer of `dtype` elements.
void write_region(std::byte* buffer, DType dtype, const Region& region);

// Elements of the buffer that are not what the region says: different bits if tolerance is 0, else (floats) a relative
// difference above it.
uint64_t count_wrong(const std::byte* buffer, DType dtype, const Region& region, double tolerance);

// Overwrites memory that the operation must fill, with what no result looks like.
void poison(std::span<std::byte> memory);

}  // namespace rondo::bench
