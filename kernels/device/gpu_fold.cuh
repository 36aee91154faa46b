// The passes of fold_pass.h as kernels.
#pragma once

#include <cuda_runtime.h>

#include "kernels/device/fold_rows.h"
#include "kernels/device/gpu_launch.h"

namespace rondo {
namespace {

// 1,024 threads a multiprocessor with at most 64 registers each: 32 KiB of loads or more in flight, where memory of
// 3.4 TB/s needs 16 KiB at 600 ns.
constexpr int kThreadsABlock = 256;
constexpr int kBlocksAMultiprocessor = 4;

__device__ ThreadPlace thread_place() {
  return {uint64_t(blockIdx.x) * blockDim.x + threadIdx.x, uint64_t(gridDim.x) * blockDim.x};
}

template <class K>
__global__ void __launch_bounds__(kThreadsABlock, kBlocksAMultiprocessor)
    fold_kernel(const __grid_constant__ PassOf<K> pass) {
  fold_thread(pass, thread_place());
}

template <class K, class Pass>
int launch_pass(void (*kernel)(Pass), PassOf<K> pass, void* stream) {
  const uint64_t wanted = (threads_of(pass) + kThreadsABlock - 1) / kThreadsABlock;
  const uint32_t blocks = blocks_at_most(pass.fold.blocks, kBlocksAMultiprocessor);
  void* arguments[] = {&pass};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(wanted < blocks ? uint32_t(wanted) : blocks),
                          dim3(kThreadsABlock), arguments, 0, static_cast<cudaStream_t>(stream));
}

template <class K>
int launch_fold(const DeviceFold& fold, void* stream) {
  return launch_pass<K>(fold_kernel<K>, pass_of<K>(fold), stream);
}

struct GpuKernels {
  using Row = FoldRow;
  template <class K>
  static constexpr FoldLaunch of() {
    return launch_fold<K>;
  }
};

}  // namespace
}  // namespace rondo
