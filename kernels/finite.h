#pragma once

#include <cstdint>
#include <optional>

#include "rondo/dtype.h"

namespace rondo {

// Index of the first element that is NaN or infinite; nullopt: there is none, or the type is no float. data: `count`
// elements, any alignment. Some 20 GB/s for float32.
std::optional<uint64_t> first_not_finite(const void* data, uint64_t count, DType dtype);

}  // namespace rondo
