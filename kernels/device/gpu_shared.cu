// Device memory that other processes map: allocations of the driver, whose descriptors stand for them; or cudaMalloc
// and legacy CUDA IPC, whose handle is handed over in a file in memory.
#include "kernels/device/gpu_shared.h"

#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "kernels/device/gpu_driver.h"

namespace rondo {
namespace {

// --- what is mapped here

enum class Kind { kDriver, kOwn, kOpened };  // by the driver; of cudaMalloc here; an opened handle of IPC
struct Mapped {
  Kind kind;
  size_t bytes;
  int device;
  int times;  // memory of cudaMalloc is used by other ranks of its process at its own address
};

std::mutex mapped_mutex;
std::map<void*, Mapped>& mapped() {
  static auto* const all = new std::map<void*, Mapped>;  // never freed: other threads may run at exit
  return *all;
}

void note(void* memory, const Mapped& how) {
  const std::lock_guard<std::mutex> lock(mapped_mutex);
  const auto [found, added] = mapped().try_emplace(memory, how);
  if (!added) ++found->second.times;
}

// Makes the device's context, if there is none.
cudaError_t current_device(int& device) {
  const cudaError_t status = cudaGetDevice(&device);
  return status != cudaSuccess ? status : cudaFree(nullptr);
}

// --- by descriptors

CUmemAllocationProp properties_on(int device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return properties;
}

// Memory is given in multiples of this; the same on both sides, as far as devices are equal.
CUresult round_up(int device, size_t& bytes) {
  const CUmemAllocationProp properties = properties_on(device);
  size_t each = 0;
  const CUresult result = gpu_driver().granularity(&each, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (result == CUDA_SUCCESS) bytes = (bytes + each - 1) / each * each;
  return result;
}

// Maps the allocation for the device. The mapping keeps it, so that its handle is released in any case.
CUresult map_handle(CUmemGenericAllocationHandle handle, size_t bytes, int device, void** memory) {
  CUdeviceptr address = 0;
  CUresult result = gpu_driver().reserve(&address, bytes, 0, 0, 0);
  if (result == CUDA_SUCCESS) {
    result = gpu_driver().map(address, bytes, 0, handle, 0);
    if (result == CUDA_SUCCESS) {
      const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
      result = gpu_driver().set_access(address, bytes, &access, 1);
      if (result != CUDA_SUCCESS) gpu_driver().unmap(address, bytes);
    }
    if (result != CUDA_SUCCESS) gpu_driver().unreserve(address, bytes);
  }
  gpu_driver().release(handle);
  if (result != CUDA_SUCCESS) return result;
  *memory = reinterpret_cast<void*>(address);
  note(*memory, {Kind::kDriver, bytes, device, 1});
  return result;
}

cudaError_t allocate_by_descriptor(size_t bytes, int device, void** memory, int* descriptor) {
  const CUmemAllocationProp properties = properties_on(device);
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = round_up(device, bytes);
  if (result == CUDA_SUCCESS) result = gpu_driver().create(&handle, bytes, &properties, 0);
  if (result != CUDA_SUCCESS) return of_driver(result);
  result = gpu_driver().hand_out(descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (result != CUDA_SUCCESS) {
    gpu_driver().release(handle);
    *descriptor = -1;
    return of_driver(result);
  }
  return of_driver(map_handle(handle, bytes, device, memory));
}

cudaError_t map_descriptor(int descriptor, size_t bytes, int device, void** memory) {
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = round_up(device, bytes);
  if (result == CUDA_SUCCESS) {
    result = gpu_driver().take_in(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)),
                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  }
  if (result == CUDA_SUCCESS) result = map_handle(handle, bytes, device, memory);
  return of_driver(result);
}

// --- by CUDA IPC

// What the file says. A process does not open its own handles: there is the address.
struct Offered {
  uint64_t magic;
  uint64_t process;
  void* address;
  int device;
  cudaIpcMemHandle_t handle;
};
constexpr uint64_t kMagic = 0x636970696f646e72;  // "rndoipic"

// Not the process's number: containers may have the same ones.
uint64_t this_process() {
  static const uint64_t token = [] {
    uint64_t value = 0;
    return getrandom(&value, sizeof value, 0) == sizeof value ? value : 0;
  }();
  return token;
}

cudaError_t allocate_by_ipc(size_t bytes, int device, void** memory, int* descriptor) {
  cudaError_t status = cudaMalloc(memory, bytes);
  if (status != cudaSuccess) return status;
  Offered offered = {kMagic, this_process(), *memory, device, {}};
  status = cudaIpcGetMemHandle(&offered.handle, *memory);
  if (status == cudaSuccess) {
    *descriptor = memfd_create("rondo_ipc", MFD_CLOEXEC);
    const bool written =
        this_process() != 0 && *descriptor >= 0 && pwrite(*descriptor, &offered, sizeof offered, 0) == sizeof offered;
    if (!written) status = cudaErrorOperatingSystem;
  }
  if (status != cudaSuccess) {
    cudaFree(*memory);
    return status;
  }
  note(*memory, {Kind::kOwn, bytes, device, 1});
  return cudaSuccess;
}

cudaError_t reach_peer(int device) {
  const cudaError_t status = cudaDeviceEnablePeerAccess(device, 0);
  if (status != cudaErrorPeerAccessAlreadyEnabled) return status;
  cudaGetLastError();  // it stays behind otherwise
  return cudaSuccess;
}

cudaError_t open_offered(int descriptor, size_t bytes, int device, void** memory) {
  Offered offered = {};
  if (pread(descriptor, &offered, sizeof offered, 0) != sizeof offered || offered.magic != kMagic) {
    return cudaErrorInvalidValue;
  }
  if (offered.process == this_process()) {
    if (offered.device != device) {
      if (const cudaError_t status = reach_peer(offered.device)) return status;
    }
    *memory = offered.address;
    note(*memory, {Kind::kOwn, bytes, offered.device, 1});
    return cudaSuccess;
  }
  const cudaError_t status = cudaIpcOpenMemHandle(memory, offered.handle, cudaIpcMemLazyEnablePeerAccess);
  if (status == cudaSuccess) note(*memory, {Kind::kOpened, bytes, device, 1});
  return status;
}

cudaError_t let_go(void* memory, const Mapped& was, bool last) {
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(was.device);
  cudaError_t status = cudaSuccess;
  if (was.kind == Kind::kOpened) status = cudaIpcCloseMemHandle(memory);
  if (was.kind == Kind::kOwn && last) status = cudaFree(memory);
  if (was.kind == Kind::kDriver) {
    const auto address = reinterpret_cast<CUdeviceptr>(memory);
    const CUresult result = gpu_driver().unmap(address, was.bytes);
    status = of_driver(result != CUDA_SUCCESS ? result : gpu_driver().unreserve(address, was.bytes));
  }
  cudaSetDevice(before);
  return status;
}

}  // namespace

int32_t gpu_shares_memory(int device) {
  int descriptors = 0, unified = 0;
  if (gpu_driver().maps()) {
    gpu_driver().attribute(&descriptors, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device);
  }
  cudaDeviceGetAttribute(&unified, cudaDevAttrUnifiedAddressing, device);
  return (descriptors != 0 ? kSharesByDescriptor : 0) | (unified != 0 ? kSharesByIpc : 0);
}

DeviceStatus gpu_allocate_shared(size_t bytes, MemorySharing sharing, void** memory, int* descriptor) {
  int device = 0;
  *descriptor = -1;
  if (const cudaError_t status = current_device(device)) return status;
  cudaError_t status = sharing == MemorySharing::kIpc ? allocate_by_ipc(bytes, device, memory, descriptor)
                                                      : allocate_by_descriptor(bytes, device, memory, descriptor);
  if (status == cudaSuccess) {
    status = cudaMemset(*memory, 0, bytes);
    if (status == cudaSuccess) status = cudaDeviceSynchronize();
    if (status != cudaSuccess) gpu_release_shared(*memory);
  }
  if (status != cudaSuccess && *descriptor >= 0) close(*descriptor);
  return status;
}

DeviceStatus gpu_map_shared(int descriptor, MemorySharing sharing, size_t bytes, void** memory) {
  int device = 0;
  if (const cudaError_t status = current_device(device)) return status;
  return sharing == MemorySharing::kIpc ? open_offered(descriptor, bytes, device, memory)
                                        : map_descriptor(descriptor, bytes, device, memory);
}

DeviceStatus gpu_release_shared(void* memory) {
  Mapped was;
  bool last = false;
  {
    const std::lock_guard<std::mutex> lock(mapped_mutex);
    const auto found = mapped().find(memory);
    if (found == mapped().end()) return cudaErrorInvalidValue;
    was = found->second;
    last = --found->second.times == 0;
    if (last) mapped().erase(found);
  }
  return let_go(memory, was, last);
}

}  // namespace rondo
