// Functions of the fake driver: memory, and copies.
#include <cstring>

#include "tests/support/fake_cuda/functions.h"

namespace rondo::testing::functions {
namespace {

// A word is written at once, as over PCIe: threads of the host look at it.
void copy_bytes(std::byte* to, std::byte* from, size_t bytes) {
  const bool is_word = bytes == sizeof(uint32_t) && reinterpret_cast<uintptr_t>(to) % bytes == 0 &&
                       reinterpret_cast<uintptr_t>(from) % bytes == 0;
  if (!is_word) return static_cast<void>(std::memcpy(to, from, bytes));
  const auto at = [](std::byte* word) { return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(word)); };
  at(to).store(at(from).load());
}

void copy_rows(int device, const Copy2D& copy) {
  const auto* const from = static_cast<const std::byte*>(pointer(copy.from.device));
  auto* const to = static_cast<std::byte*>(writable(copy.to.device));
  move_bytes(to, from, copy.row_bytes * copy.rows, [&] {
    for (size_t row = 0; row < copy.rows; ++row) {
      copy_bytes(fake().memory.reach(to + row * copy.to.pitch, copy.row_bytes, device, By::kCopy),
                 fake().memory.reach(from + row * copy.from.pitch, copy.row_bytes, device, By::kCopy), copy.row_bytes);
    }
  });
}

}  // namespace

Result MemAlloc(Pointer* memory, size_t bytes) {
  FakeContext* const context = here().current.back();
  void* const made = fake().memory.allocate(bytes, context->device);
  *memory = reinterpret_cast<Pointer>(made);
  return made != nullptr ? kSuccess : bytes == 0 ? kInvalidValue : kOutOfMemory;
}
// After everything that has been put into streams.
Result MemFree(Pointer memory) {
  for (const auto& queue : fake().queues) queue->synchronize_all();
  return fake().memory.release(writable(memory)) ? kSuccess : kInvalidValue;
}
Result MemsetD8Async(Pointer memory, unsigned char value, size_t bytes, Stream stream) {
  return put_into(stream, [=](const FakeStream& in) {
    const size_t cleared = value == 0 ? fake().memory.clear(writable(memory), bytes) : 0;
    std::memset(fake().memory.reach(pointer(memory), bytes, in.context->device, By::kKernel) + cleared, value,
                bytes - cleared);
  });
}
Result MemcpyAsync(Pointer to, Pointer from, size_t bytes, Stream stream) {
  const Copy2D rows{{0, 0, kMemoryUnified, nullptr, from, nullptr, bytes},
                    {0, 0, kMemoryUnified, nullptr, to, nullptr, bytes},
                    bytes,
                    1};
  const Result status = put_into(stream, [rows](const FakeStream& in) { copy_rows(in.context->device, rows); });
  const bool in_host = fake().memory.home_of(pointer(to)) < 0 && fake().memory.home_of(pointer(from)) < 0;
  return status == kSuccess && in_host ? StreamSynchronize(stream) : status;
}
Result Memcpy2DAsync(const Copy2D* copy, Stream stream) {
  const auto most = static_cast<size_t>(setting("FAKE_CUDA_MAX_PITCH", 0x7fffffff));
  const auto wrong = [&](const Copy2DSide& side) {
    return side.type != kMemoryUnified || side.x != 0 || side.y != 0 || side.pitch < copy->row_bytes ||
           side.pitch > most;
  };
  if (wrong(copy->from) || wrong(copy->to)) return kInvalidValue;
  return put_into(stream, [rows = *copy](const FakeStream& in) { copy_rows(in.context->device, rows); });
}
Result PointerGetAttributes(unsigned count, PointerAttribute* attributes, void** data, Pointer address) {
  const int home = fake().memory.home_of(pointer(address));
  const bool locked = fake().memory.is_locked(pointer(address));
  for (unsigned i = 0; i < count; ++i) {
    int value = 0;
    if (attributes[i] == kMemoryType) value = home >= 0 ? kMemoryDevice : locked ? 1 : 0;
    if (attributes[i] == kDeviceOrdinal) value = home >= 0 ? home : -2;
    std::memcpy(data[i], &value, sizeof value);
  }
  return kSuccess;
}
Result MemHostRegister(void* memory, size_t bytes, unsigned flags) {
  if (memory == nullptr || bytes == 0 || flags != (kRegisterPortable | kRegisterDeviceMap)) return kInvalidValue;
  return fake().memory.lock_host(memory, bytes) ? kSuccess : kHostMemoryAlreadyRegistered;
}
Result MemHostUnregister(void* memory) {
  return fake().memory.unlock_host(memory) ? kSuccess : kHostMemoryNotRegistered;
}
Result MemHostGetDevicePointer(Pointer* at_device, void* memory, unsigned flags) {
  if (flags != 0 || !fake().memory.is_locked(memory)) return kInvalidValue;
  return *at_device = reinterpret_cast<Pointer>(memory), kSuccess;
}

// --- memory that other processes map
bool are_right(const AllocationProperties& properties) {
  return properties.type == kAllocationPinned && properties.location.type == kLocationDevice &&
         is_device(properties.location.id) && properties.handle_types == kPosixFileDescriptor;
}
Result MemGetAllocationGranularity(size_t* bytes, const AllocationProperties* properties, int which) {
  if (which != kGranularityRecommended || !are_right(*properties)) return kInvalidValue;
  return *bytes = FakeMemory::kGranularity, kSuccess;
}
Result MemCreate(Allocation* allocation, size_t bytes, const AllocationProperties* properties,
                 unsigned long long flags) {
  const bool shares = (setting("FAKE_CUDA_SHARES", kSharesByDescriptors) & kSharesByDescriptors) != 0;
  if (!shares) return kNotSupported;
  if (flags != 0 || !are_right(*properties) || bytes % FakeMemory::kGranularity != 0) return kInvalidValue;
  *allocation = fake().memory.create(bytes, properties->location.id);
  return *allocation != 0 ? kSuccess : kOutOfMemory;
}
Result MemRelease(Allocation allocation) { return fake().memory.drop(allocation) ? kSuccess : kInvalidValue; }
Result MemExportToShareableHandle(void* handle, Allocation allocation, int type, unsigned long long flags) {
  if (type != kPosixFileDescriptor || flags != 0) return kInvalidValue;
  const int descriptor = fake().memory.hand_out(allocation);
  std::memcpy(handle, &descriptor, sizeof descriptor);
  return descriptor >= 0 ? kSuccess : kInvalidValue;
}
Result MemImportFromShareableHandle(Allocation* allocation, void* handle, int type) {
  if (setting("FAKE_CUDA_IMPORTS", 1) == 0) return kNotSupported;
  if (type != kPosixFileDescriptor) return kInvalidValue;
  *allocation = fake().memory.take_in(static_cast<int>(reinterpret_cast<intptr_t>(handle)));
  return *allocation != 0 ? kSuccess : kInvalidValue;
}
Result MemAddressReserve(Pointer* memory, size_t bytes, size_t alignment, Pointer wanted, unsigned long long flags) {
  if (alignment != 0 || wanted != 0 || flags != 0) return kInvalidValue;
  void* const found = fake().memory.reserve(bytes);
  *memory = reinterpret_cast<Pointer>(found);
  return found != nullptr ? kSuccess : kInvalidValue;
}
Result MemAddressFree(Pointer memory, size_t bytes) {
  return fake().memory.unreserve(writable(memory), bytes) ? kSuccess : kInvalidValue;
}
Result MemMap(Pointer memory, size_t bytes, size_t offset, Allocation allocation, unsigned long long flags) {
  if (offset != 0 || flags != 0) return kInvalidValue;
  return fake().memory.map(writable(memory), bytes, allocation) ? kSuccess : kInvalidValue;
}
// At once: what is still in streams and touches it ends the process.
Result MemUnmap(Pointer memory, size_t bytes) {
  return fake().memory.unmap(writable(memory), bytes) ? kSuccess : kInvalidValue;
}
Result MemSetAccess(Pointer memory, size_t bytes, const Access* access, size_t count) {
  const int home = fake().memory.home_of(pointer(memory));
  if (count != 1 || access->flags != kReadWrite || access->location.type != kLocationDevice) return kInvalidValue;
  const int device = access->location.id;
  if (!is_device(device)) return kInvalidDevice;
  if (!maps(device, home)) return kInvalidDevice;
  return fake().memory.give_access(writable(memory), bytes, device) ? kSuccess : kInvalidValue;
}
bool shares_by_handles() {
  return (setting("FAKE_CUDA_SHARES", kSharesByDescriptors | kSharesByHandles) & kSharesByHandles) != 0;
}
Result IpcGetMemHandle(IpcHandle* handle, Pointer memory) {
  if (!shares_by_handles()) return kNotSupported;
  return fake().memory.get_handle(writable(memory), *handle) ? kSuccess : kInvalidValue;
}
Result IpcOpenMemHandle(Pointer* memory, IpcHandle handle, unsigned flags) {
  FakeContext* const context = here().current.back();
  if (!shares_by_handles()) return kNotSupported;
  const int home = FakeMemory::home_of(handle);
  if (flags != kLazyEnablePeerAccess) return kInvalidValue;
  if (!maps(context->device, home)) return kPeerAccessUnsupported;
  void* const found = fake().memory.open_handle(handle, context->device);
  *memory = reinterpret_cast<Pointer>(found);
  return found != nullptr ? kSuccess : kInvalidContext;
}
Result IpcCloseMemHandle(Pointer memory) {
  return fake().memory.close_handle(writable(memory)) ? kSuccess : kInvalidValue;
}

}  // namespace rondo::testing::functions
