#pragma once

#include <cstddef>

namespace rondo {

// The bar for float32 sums: plain loops, compiled with -O3 -march=native. No overlap, but in place where it says so.
void plain_add(const float* left, const float* right, float* sum, size_t count);
void plain_add_in_place(float* left, const float* right, size_t count);

}  // namespace rondo
