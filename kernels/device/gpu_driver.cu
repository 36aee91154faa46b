#include "kernels/device/gpu_driver.h"

namespace rondo {
namespace {

// Of the driver's stream waits that need no setting of the kernel module, and of all else that is asked for.
constexpr int kDriverVersion = 11070;
constexpr int kLoadVersion = 12040;  // of cuFuncLoad

template <class Function>
void find(const char* name, Function& function, int version = kDriverVersion) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result);
  const bool there = status == cudaSuccess && result == cudaDriverEntryPointSuccess;
  function = there ? reinterpret_cast<Function>(found) : nullptr;
}

GpuDriver find_all() {
  GpuDriver driver = {};
  find("cuStreamBatchMemOp", driver.batch_memory);
  find("cuDeviceGetAttribute", driver.attribute);
  find("cuMemGetAllocationGranularity", driver.granularity);
  find("cuMemCreate", driver.create);
  find("cuMemRelease", driver.release);
  find("cuMemExportToShareableHandle", driver.hand_out);
  find("cuMemImportFromShareableHandle", driver.take_in);
  find("cuMemAddressReserve", driver.reserve);
  find("cuMemAddressFree", driver.unreserve);
  find("cuMemMap", driver.map);
  find("cuMemUnmap", driver.unmap);
  find("cuMemSetAccess", driver.set_access);
  find("cuFuncLoad", driver.load, kLoadVersion);
  return driver;
}

}  // namespace

const GpuDriver& gpu_driver() {
  static const GpuDriver driver = find_all();
  return driver;
}

}  // namespace rondo
