#pragma once

#include <cstddef>

namespace rondo {

// The kernels of gpu.cu for all GPUs that they are made for, a fat binary; bytes 0 where the tree was built without
// nvcc.
struct GpuCode {
  const void* image;
  size_t bytes;
  int cuda;  // the oldest release of CUDA that loads it: 13000
};
GpuCode gpu_code();

}  // namespace rondo
