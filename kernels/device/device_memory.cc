// DeviceDriver: device memory that other processes map: allocations of the driver, whose descriptors stand for them; or
// MemAlloc and legacy CUDA IPC, whose handle is handed over in a file in memory.
#include <sys/mman.h>
#include <sys/random.h>
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

// What the file of IPC says. A process does not open its own handles: there is the address.
struct Offered {
  uint64_t magic;
  uint64_t process;
  void* address;
  int device;
  cuda::IpcHandle handle;
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

}  // namespace

// Remembers how memory was made, for release_shared(). Under IPC two ranks of a process have it at one address.
void DeviceDriver::note(void* memory, const Mapped& how) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [found, added] = mapped_.try_emplace(memory, how);
  if (!added) ++found->second.times;
}

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

// --- by descriptors

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
  note(*memory, {How::kDriver, bytes, device, 1});
  return 0;
}

// The driver's own allocation (VMM): its descriptor is sent like any other file, and any process that has it may map
// it.
DeviceStatus DeviceDriver::allocate_by_descriptor(int device, size_t bytes, void** memory, int* descriptor) const {
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

DeviceStatus DeviceDriver::map_descriptor(int device, int descriptor, size_t bytes, void** memory) const {
  cuda::Allocation allocation = 0;
  DeviceStatus status = round_up(device, bytes);
  if (status == 0) {
    status = api_.MemImportFromShareableHandle(&allocation, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)),
                                               cuda::kPosixFileDescriptor);
  }
  return status != 0 ? status : map_allocation(allocation, bytes, device, memory);
}

// --- by CUDA IPC

// The older way, for devices whose driver gives no descriptors: the handle of 64 bytes travels in a file in memory, so
// that both ways look alike to the caller.
DeviceStatus DeviceDriver::allocate_by_ipc(int device, size_t bytes, void** memory, int* descriptor) const {
  cuda::Pointer address = 0;
  if (const DeviceStatus status = api_.MemAlloc(&address, bytes)) return status;
  *memory = reinterpret_cast<void*>(address);
  Offered offered = {kMagic, this_process(), *memory, device, {}};
  DeviceStatus status = api_.IpcGetMemHandle(&offered.handle, address);
  if (status == 0) {
    *descriptor = memfd_create("rondo_ipc", MFD_CLOEXEC);
    const bool written =
        this_process() != 0 && *descriptor >= 0 && pwrite(*descriptor, &offered, sizeof offered, 0) == sizeof offered;
    if (!written) status = cuda::kOperatingSystem;
  }
  if (status != 0) {
    api_.MemFree(address);
    return status;
  }
  note(*memory, {How::kOwn, bytes, device, 1});
  return 0;
}

DeviceStatus DeviceDriver::open_offered(int device, int descriptor, size_t bytes, void** memory) const {
  Offered offered = {};
  if (pread(descriptor, &offered, sizeof offered, 0) != sizeof offered || offered.magic != kMagic) {
    return cuda::kInvalidValue;
  }
  if (offered.process == this_process()) {
    Gpu* peer = nullptr;
    if (const DeviceStatus status = find_gpu(offered.device, &peer)) return status;
    const DeviceStatus status = offered.device == device ? 0 : api_.CtxEnablePeerAccess(peer->context, 0);
    if (status != 0 && status != cuda::kPeerAccessAlreadyEnabled) return status;
    *memory = offered.address;
    note(*memory, {How::kOwn, bytes, offered.device, 1});
    return 0;
  }
  cuda::Pointer address = 0;
  const DeviceStatus status = api_.IpcOpenMemHandle(&address, offered.handle, cuda::kLazyEnablePeerAccess);
  if (status != 0) return status;
  *memory = reinterpret_cast<void*>(address);
  note(*memory, {How::kOpened, bytes, device, 1});
  return 0;
}

// --- both

DeviceStatus DeviceDriver::allocate_shared(int device, size_t bytes, MemorySharing sharing, void** memory,
                                           int* descriptor) const {
  *descriptor = -1;
  free_ended();
  const DeviceStatus status = on(device, [&](Gpu&) {
    const DeviceStatus made = sharing == MemorySharing::kIpc
                                  ? allocate_by_ipc(device, bytes, memory, descriptor)
                                  : allocate_by_descriptor(device, bytes, memory, descriptor);
    if (made != 0) return made;
    const DeviceStatus zeroed = zero(device, *memory, bytes);
    if (zeroed != 0) release_shared(*memory);
    return zeroed;
  });
  if (status != 0 && *descriptor >= 0) close(*descriptor);
  return status;
}

DeviceStatus DeviceDriver::map_shared(int device, int descriptor, MemorySharing sharing, size_t bytes,
                                      void** memory) const {
  return on(device, [&](Gpu&) {
    return sharing == MemorySharing::kIpc ? open_offered(device, descriptor, bytes, memory)
                                          : map_descriptor(device, descriptor, bytes, memory);
  });
}

// Unmaps what is a peer's, frees what is this process's own and has no other user.
DeviceStatus DeviceDriver::release_shared(void* memory) const {
  Mapped was = {};
  bool last = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = mapped_.find(memory);
    if (found == mapped_.end()) return cuda::kInvalidValue;
    was = found->second;
    last = --found->second.times == 0;
    if (last) mapped_.erase(found);
  }
  const auto address = reinterpret_cast<cuda::Pointer>(memory);
  return on(was.device, [&](Gpu&) -> DeviceStatus {
    if (was.how == How::kOpened) return api_.IpcCloseMemHandle(address);
    if (was.how == How::kOwn) return last ? api_.MemFree(address) : 0;
    const DeviceStatus status = api_.MemUnmap(address, was.bytes);
    return status != 0 ? status : api_.MemAddressFree(address, was.bytes);
  });
}

}  // namespace rondo
