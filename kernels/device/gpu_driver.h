#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

namespace rondo {

// Functions of the driver, found without linking against it; nullptr where it has none.
struct GpuDriver {
  decltype(&cuStreamBatchMemOp) batch_memory;
  decltype(&cuDeviceGetAttribute) attribute;
  decltype(&cuMemGetAllocationGranularity) granularity;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemExportToShareableHandle) hand_out;
  decltype(&cuMemImportFromShareableHandle) take_in;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) unreserve;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
  decltype(&cuFuncLoad) load;

  // Memory can be made, handed out and mapped piece by piece.
  bool maps() const {
    return attribute && granularity && create && release && hand_out && take_in && reserve && unreserve && map &&
           unmap && set_access;
  }
};
const GpuDriver& gpu_driver();

// An error of the driver as one of the runtime, whose numbers are the same.
constexpr cudaError_t of_driver(CUresult result) { return static_cast<cudaError_t>(result); }
static_assert(of_driver(CUDA_ERROR_OUT_OF_MEMORY) == cudaErrorMemoryAllocation &&
              of_driver(CUDA_ERROR_INVALID_DEVICE) == cudaErrorInvalidDevice &&
              of_driver(CUDA_ERROR_INVALID_HANDLE) == cudaErrorInvalidResourceHandle &&
              of_driver(CUDA_ERROR_ILLEGAL_ADDRESS) == cudaErrorIllegalAddress &&
              of_driver(CUDA_ERROR_NOT_SUPPORTED) == cudaErrorNotSupported &&
              of_driver(CUDA_ERROR_UNKNOWN) == cudaErrorUnknown);

}  // namespace rondo
