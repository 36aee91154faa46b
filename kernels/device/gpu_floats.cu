#include "kernels/device/gpu_fold.cuh"

namespace rondo {
namespace {

__global__ void __launch_bounds__(kThreadsABlock, kBlocksAMultiprocessor)
    copy_kernel(const __grid_constant__ PassOf<Copy> given, const __grid_constant__ PeerPlaces places) {
  RONDO_SHARED_PASS(Copy, pass);
  if (find_pass(given, places, pass)) copy_thread(pass, thread_place());
}

}  // namespace

const FoldRow& other_fold_row(int dtype) {
  static constexpr OtherRows kRows = other_rows<GpuKernels>();
  return kRows.of[dtype - kIntegers];
}

uint32_t blocks_at_most(uint32_t asked, int blocks_a_multiprocessor) {
  if (asked > 0) return asked;
  int device = 0, multiprocessors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  return multiprocessors > 0 ? uint32_t(multiprocessors * blocks_a_multiprocessor) : 1;
}

int gpu_fold(const DeviceFold& fold, const PeerPlaces& places, void* stream) {
  if (fold.count == 0) return cudaSuccess;
  if (fold.fold == kCopies) return launch_pass<Copy>(copy_kernel, pass_of<Copy>(bytes_of(fold)), places, stream);
  const FoldRow& row = fold.dtype < kIntegers ? integer_fold_row(fold.dtype) : other_fold_row(fold.dtype);
  const FoldLaunch launch = row.folds[fold.fold];
  return launch != nullptr ? launch(fold, places, stream) : cudaErrorInvalidValue;
}

}  // namespace rondo
