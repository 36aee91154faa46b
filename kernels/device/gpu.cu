// The passes of fold_pass.h as kernels, one a dtype: rondo_fold_0 .. rondo_fold_14 by DType, and rondo_copy. All take a
// DeviceFold and a PeerPlaces.
#include <utility>

#include "kernels/device/fold_rows.h"

namespace rondo {
namespace {

// A block's pass, with its pointers found, in shared memory. False: nothing may be touched.
__device__ __forceinline__ bool find_pass(const DeviceFold& given, const PeerPlaces& places, uint64_t element_bytes,
                                          Pass& pass) {
  const uint32_t thread = threadIdx.x, threads = blockDim.x;
  for (uint32_t i = thread; i < given.source_count; i += threads) pass.fold.sources[i] = given.sources[i];
  for (uint32_t i = thread; i < given.target_count; i += threads) pass.fold.targets[i] = given.targets[i];
  if (thread == 0) {
    pass.fold.count = count_in_message(places, given.count, element_bytes);
    pass.fold.scaled = given.scaled;
    pass.fold.arguments = given.arguments;
    pass.fold.source_count = given.source_count;
    pass.fold.target_count = given.target_count;
  }
  __syncthreads();
  if (places.world != 0) {
    const bool found = find_places(places, pass.fold, given.count * element_bytes, {thread, threads});
    if (__syncthreads_or(found ? 0 : 1) != 0) return false;
  }
  if (thread == 0) align_pass(pass, element_bytes);
  __syncthreads();
  return true;
}

__device__ __forceinline__ ThreadPlace thread_place() {
  return {uint64_t(blockIdx.x) * blockDim.x + threadIdx.x, uint64_t(gridDim.x) * blockDim.x};
}

template <int kDType, int kFold>
__device__ __forceinline__ void run_if(const Pass& pass, int fold) {
  constexpr ThreadFold kRun = kThreadFolds.of[kDType].folds[kFold];
  if constexpr (kRun != nullptr) {
    if (fold == kFold) kRun(pass, thread_place());
  }
}

template <int kDType, int... kFold>
__device__ __forceinline__ void run_one_of(const Pass& pass, int fold, std::integer_sequence<int, kFold...>) {
  (run_if<kDType, kFold>(pass, fold), ...);
}

template <int kDType>
constexpr uint64_t kElementBytes = dtype_bytes(DType(kDType));

template <int kDType>
__device__ __forceinline__ void run(const DeviceFold& given, const PeerPlaces& places) {
  __shared__ Pass pass;
  if (!find_pass(given, places, kElementBytes<kDType>, pass)) return;
  run_one_of<kDType>(pass, given.fold, std::make_integer_sequence<int, kFolds>{});
}

}  // namespace
}  // namespace rondo

#define RONDO_KERNEL(name)                                                                           \
  extern "C" __global__ void __launch_bounds__(rondo::kThreadsABlock, rondo::kBlocksAMultiprocessor) \
      name(const __grid_constant__ rondo::DeviceFold given, const __grid_constant__ rondo::PeerPlaces places)
#define RONDO_FOLD_KERNEL(dtype) \
  RONDO_KERNEL(rondo_fold_##dtype) { rondo::run<dtype>(given, places); }

RONDO_FOLD_KERNEL(0)
RONDO_FOLD_KERNEL(1)
RONDO_FOLD_KERNEL(2)
RONDO_FOLD_KERNEL(3)
RONDO_FOLD_KERNEL(4)
RONDO_FOLD_KERNEL(5)
RONDO_FOLD_KERNEL(6)
RONDO_FOLD_KERNEL(7)
RONDO_FOLD_KERNEL(8)
RONDO_FOLD_KERNEL(9)
RONDO_FOLD_KERNEL(10)
RONDO_FOLD_KERNEL(11)
RONDO_FOLD_KERNEL(12)
RONDO_FOLD_KERNEL(13)
RONDO_FOLD_KERNEL(14)
static_assert(rondo::kDTypes == 15);

RONDO_KERNEL(rondo_copy) {
  __shared__ rondo::Pass pass;
  if (rondo::find_pass(given, places, 1, pass)) rondo::copy_thread(pass, rondo::thread_place());
}
