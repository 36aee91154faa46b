#include "kernels/device/gpu_driver.h"
#include "kernels/device/gpu_fold.cuh"

namespace rondo {
namespace {

__global__ void __launch_bounds__(kThreadsABlock, kBlocksAMultiprocessor)
    copy_kernel(const __grid_constant__ PassOf<Copy> given, const __grid_constant__ PeerPlaces places) {
  RONDO_SHARED_PASS(Copy, pass);
  if (find_pass(given, places, pass)) copy_thread(pass, thread_place());
}

const FoldRow& fold_row(int dtype) { return dtype < kIntegers ? integer_fold_row(dtype) : other_fold_row(dtype); }

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
  const FoldLaunch launch = fold_row(fold.dtype).folds[fold.fold];
  return launch != nullptr ? launch(fold, places, stream) : cudaErrorInvalidValue;
}

int gpu_load(const void* kernel) {
  cudaFunction_t function = nullptr;
  if (gpu_driver().load == nullptr) return cudaErrorNotSupported;
  const cudaError_t status = cudaGetFuncBySymbol(&function, kernel);
  return status != cudaSuccess ? status : of_driver(gpu_driver().load(function));
}

int gpu_load_folds() {
  DeviceFold none = {};
  none.arguments.world = 1;
  int status = gpu_load(reinterpret_cast<const void*>(copy_kernel));
  for (int dtype = 0; dtype < kDTypes; ++dtype) {
    for (const FoldLaunch launch : fold_row(dtype).folds) {
      if (status == cudaSuccess && launch != nullptr) status = launch(none, PeerPlaces{}, nullptr);
    }
  }
  return status;
}

}  // namespace rondo
