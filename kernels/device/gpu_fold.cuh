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

// A block's pass, with its pointers found: from here on they are in shared memory. False: nothing may be touched.
template <class K>
__device__ __forceinline__ bool find_pass(const PassOf<K>& given, const PeerPlaces& places, PassOf<K>& pass) {
  const uint32_t thread = threadIdx.x, threads = blockDim.x;
  for (uint32_t i = thread; i < given.fold.source_count; i += threads) pass.fold.sources[i] = given.fold.sources[i];
  for (uint32_t i = thread; i < given.fold.target_count; i += threads) pass.fold.targets[i] = given.fold.targets[i];
  if (thread == 0) {
    pass.fold.count = count_in_message(places, given.fold.count, K::Format::kBytes);
    pass.fold.scaled = given.fold.scaled;
    pass.fold.source_count = given.fold.source_count;
    pass.fold.target_count = given.fold.target_count;
    pass.factor = given.factor;
    pass.constant = given.constant;
    pass.head = given.head;
    pass.packets = given.packets;
  }
  __syncthreads();
  if (places.world == 0) return true;
  const bool found = find_places(places, pass.fold, given.fold.count * K::Format::kBytes, {thread, threads});
  if (__syncthreads_or(found ? 0 : 1) != 0) return false;
  if (thread == 0) align_pass(pass);
  __syncthreads();
  return true;
}

// Shared memory for a block's pass, whose members have no constructors to run.
#define RONDO_SHARED_PASS(K, name)                                       \
  __shared__ alignas(16) unsigned char name##_memory[sizeof(PassOf<K>)]; \
  PassOf<K>& name = *reinterpret_cast<PassOf<K>*>(name##_memory)

template <class K>
__global__ void __launch_bounds__(kThreadsABlock, kBlocksAMultiprocessor)
    fold_kernel(const __grid_constant__ PassOf<K> given, const __grid_constant__ PeerPlaces places) {
  RONDO_SHARED_PASS(K, pass);
  if (find_pass(given, places, pass)) fold_thread(pass, thread_place());
}

// A pass of no element loads the kernel.
template <class K>
int launch_pass(void (*kernel)(PassOf<K>, PeerPlaces), PassOf<K> pass, const PeerPlaces& places, void* stream) {
  if (pass.fold.count == 0) return gpu_load(reinterpret_cast<const void*>(kernel));
  // Where pointers are found later, as many as if all lay well.
  const uint64_t found = threads_of(pass), all = pass.fold.count * K::Format::kBytes / kPacketBytes + 1;
  const uint64_t wanted = ((places.world != 0 ? all : found) + kThreadsABlock - 1) / kThreadsABlock;
  const uint32_t blocks = blocks_at_most(pass.fold.blocks, kBlocksAMultiprocessor);
  PeerPlaces given = places;
  void* arguments[] = {&pass, &given};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(wanted < blocks ? uint32_t(wanted) : blocks),
                          dim3(kThreadsABlock), arguments, 0, static_cast<cudaStream_t>(stream));
}

template <class K>
int launch_fold(const DeviceFold& fold, const PeerPlaces& places, void* stream) {
  return launch_pass<K>(fold_kernel<K>, pass_of<K>(fold), places, stream);
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
