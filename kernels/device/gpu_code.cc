#include "kernels/device/gpu_code.h"

// RONDO_CUDA: the major number of the nvcc that made the fat binary, which gpu_code.S holds; 0: there is none.
#if RONDO_CUDA > 0
extern "C" __attribute__((visibility("hidden"))) const unsigned char rondo_gpu_code[], rondo_gpu_code_end[];
#endif

namespace rondo {

GpuCode gpu_code() {
#if RONDO_CUDA > 0
  return {rondo_gpu_code, static_cast<size_t>(rondo_gpu_code_end - rondo_gpu_code), RONDO_CUDA * 1000};
#else
  return {"no nvcc", 0, 0};
#endif
}

}  // namespace rondo
