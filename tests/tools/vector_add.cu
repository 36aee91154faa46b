#include <cuda_runtime.h>

#include <cstddef>

#include "tests/tools/vector_add.h"

namespace {

__global__ void add(const float* left, const float* right, float* sum, size_t count) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) sum[i] = left[i] + right[i];
}

}  // namespace

int vector_add(const float* left, const float* right, float* sum, size_t count) {
  constexpr unsigned kThreads = 256;
  const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  add<<<blocks, kThreads>>>(left, right, sum, count);
  return static_cast<int>(cudaGetLastError());
}
