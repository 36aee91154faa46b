// DeviceDriver: device memory that other processes map: allocations of the driver (VMM), whose descriptors stand for
// them. A descriptor is sent like any other file, and any process that has it may map the memory.
#include <unistd.h>

#include "kernels/device/device_driver.h"

namespace rondo {
namespace {

cuda::AllocationProperties properties_on(int device) {
  cuda::AllocationProperties properties = {};
  properties.type = cuda::kAllocationPinned;
  properties.handle_types = cuda::kPosixFileDescriptor;
  properties.location = {cuda::kLocationDevice, device};
  return properties;
}

}  // namespace

// In a stream of its own: the legacy one would wait for others'.
DeviceStatus DeviceDriver::zero(int device, void* memory, size_t bytes) const {
  return on(device, [&](Gpu&) {
    DeviceStream stream = nullptr;
    DeviceStatus status = api_.StreamCreate(&stream, cuda::kStreamNonBlocking);
    if (status != 0) return status;
    status = api_.MemsetD8Async(reinterpret_cast<cuda::Pointer>(memory), 0, bytes, stream);
    if (status == 0) status = api_.StreamSynchronize(stream);
    const DeviceStatus destroyed = api_.StreamDestroy(stream);
    return status != 0 ? status : destroyed;
  });
}

// Memory is given in multiples of this; the same on both sides, as far as devices are equal.
DeviceStatus DeviceDriver::round_up(int device, size_t& bytes) const {
  const cuda::AllocationProperties properties = properties_on(device);
  size_t each = 0;
  const DeviceStatus status = api_.MemGetAllocationGranularity(&each, &properties, cuda::kGranularityRecommended);
  if (status == 0) bytes = (bytes + each - 1) / each * each;
  return status;
}

// Maps the allocation for the device. The mapping keeps it, so that its handle is released in any case.
DeviceStatus DeviceDriver::map_allocation(cuda::Allocation allocation, size_t bytes, int device, void** memory) const {
  cuda::Pointer address = 0;
  DeviceStatus status = api_.MemAddressReserve(&address, bytes, 0, 0, 0);
  if (status == 0) {
    status = api_.MemMap(address, bytes, 0, allocation, 0);
    if (status == 0) {
      const cuda::Access access = {{cuda::kLocationDevice, device}, cuda::kReadWrite};
      status = api_.MemSetAccess(address, bytes, &access, 1);
      if (status != 0) api_.MemUnmap(address, bytes);
    }
    if (status != 0) api_.MemAddressFree(address, bytes);
  }
  api_.MemRelease(allocation);
  if (status != 0) return status;
  *memory = reinterpret_cast<void*>(address);
  const std::lock_guard<std::mutex> lock(mutex_);
  mapped_[*memory] = {bytes, device};
  return 0;
}

DeviceStatus DeviceDriver::make_exported(int device, size_t bytes, void** memory, int* descriptor) const {
  const cuda::AllocationProperties properties = properties_on(device);
  cuda::Allocation allocation = 0;
  DeviceStatus status = round_up(device, bytes);
  if (status == 0) status = api_.MemCreate(&allocation, bytes, &properties, 0);
  if (status != 0) return status;
  status = api_.MemExportToShareableHandle(descriptor, allocation, cuda::kPosixFileDescriptor, 0);
  if (status == 0) return map_allocation(allocation, bytes, device, memory);
  api_.MemRelease(allocation);
  *descriptor = -1;
  return status;
}

DeviceStatus DeviceDriver::allocate_shared(int device, size_t bytes, void** memory, int* descriptor) const {
  *descriptor = -1;
  free_ended();
  const DeviceStatus status = on(device, [&](Gpu&) {
    const DeviceStatus made = make_exported(device, bytes, memory, descriptor);
    if (made != 0) return made;
    const DeviceStatus zeroed = zero(device, *memory, bytes);
    if (zeroed != 0) release_shared(*memory);
    return zeroed;
  });
  if (status != 0 && *descriptor >= 0) close(*descriptor);
  return status;
}

DeviceStatus DeviceDriver::map_shared(int device, int descriptor, size_t bytes, void** memory) const {
  return on(device, [&](Gpu&) {
    cuda::Allocation allocation = 0;
    DeviceStatus status = round_up(device, bytes);
    if (status != 0) return status;
    void* const handle = reinterpret_cast<void*>(static_cast<intptr_t>(descriptor));
    status = api_.MemImportFromShareableHandle(&allocation, handle, cuda::kPosixFileDescriptor);
    return status != 0 ? status : map_allocation(allocation, bytes, device, memory);
  });
}

DeviceStatus DeviceDriver::release_shared(void* memory) const {
  Mapped was = {};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = mapped_.find(memory);
    if (found == mapped_.end()) return cuda::kInvalidValue;
    was = found->second;
    mapped_.erase(found);
  }
  const auto address = reinterpret_cast<cuda::Pointer>(memory);
  return on(was.device, [&](Gpu&) {
    const DeviceStatus status = api_.MemUnmap(address, was.bytes);
    return status != 0 ? status : api_.MemAddressFree(address, was.bytes);
  });
}

}  // namespace rondo
