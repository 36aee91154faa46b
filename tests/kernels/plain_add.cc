#include "tests/kernels/plain_add.h"

namespace rondo {

void plain_add(const float* __restrict left, const float* __restrict right, float* __restrict sum, size_t count) {
  for (size_t i = 0; i < count; ++i) sum[i] = left[i] + right[i];
}

void plain_add_in_place(float* __restrict left, const float* __restrict right, size_t count) {
  for (size_t i = 0; i < count; ++i) left[i] += right[i];
}

}  // namespace rondo
