#pragma once

#include <cstddef>

// sum = left + right on the current device, on its default stream. Returns the cudaError_t of the launch, 0 if it
// went. All pointers are device memory of `count` floats.
int vector_add(const float* left, const float* right, float* sum, size_t count);
