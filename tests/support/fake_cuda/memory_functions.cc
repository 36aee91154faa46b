// Functions of the fake driver: memory, and copies.
#include <fcntl.h>

#include <cstring>

#include "ring/base/check.h"
#include "tests/support/fake_cuda/functions.h"

namespace rondo::testing::functions {
namespace {

using Kind = FakeMemory::Kind;
using Run = FakeMemory::Run;

struct Locked {
  FakeMemory& memory = fake().memory;
  const std::lock_guard<std::mutex> lock{memory.mutex};
  FakeMemory* operator->() const { return &memory; }
};

constexpr uint32_t bit(int device) { return 1u << device; }

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

// Whole pages that are zeroed take no memory.
void zero(const FakeContext& in, Pointer memory, size_t bytes) {
  constexpr size_t kPageBytes = 4096;
  std::byte* const data = fake().memory.reach(pointer(memory), bytes, in.device, By::kKernel);
  const size_t pages = bytes / kPageBytes * kPageBytes;
  {
    const Locked all;
    const auto& [begin, run] = *all->holding(pointer(memory), bytes);
    RONDO_CHECK(
        begin == memory && (pages == 0 || fallocate(run.file->descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                                    kPageBytes, static_cast<off_t>(pages)) == 0),
        "zeroing from the first byte on");
  }
  std::memset(data + pages, 0, bytes - pages);
}

}  // namespace

void MemAlloc(Pointer* memory, size_t bytes) {
  const int device = current_context().device;
  auto file = make_file(bytes, device);
  *memory = Locked()->add({Kind::kAllocated, bytes, bit(device), std::move(file)});
}
// After everything that has been put into streams.
void MemFree(Pointer memory) {
  for (const auto& queue : fake().queues) queue->synchronize_all();
  Locked()->remove(memory, Kind::kAllocated);
}
void MemsetD8Async(Pointer memory, unsigned char value, size_t bytes, Stream stream) {
  require(value == 0);  // nobody asks for another one
  put(stream_at(stream), [=](const FakeContext& in) { zero(in, memory, bytes); });
}
void MemcpyAsync(Pointer to, Pointer from, size_t bytes, Stream stream) {
  const Copy2D rows{{0, 0, kMemoryUnified, nullptr, from, nullptr, bytes},
                    {0, 0, kMemoryUnified, nullptr, to, nullptr, bytes},
                    bytes,
                    1};
  put(stream_at(stream), [rows](const FakeContext& in) { copy_rows(in.device, rows); });
  if (fake().memory.home_of(pointer(to)) < 0 && fake().memory.home_of(pointer(from)) < 0) StreamSynchronize(stream);
}
void Memcpy2DAsync(const Copy2D* copy, Stream stream) {
  const auto most = static_cast<size_t>(setting("FAKE_CUDA_MAX_PITCH", 0x7fffffff));
  for (const Copy2DSide& side : {copy->from, copy->to}) {
    require(side.type == kMemoryUnified && side.x == 0 && side.y == 0);
    require(side.pitch >= copy->row_bytes && side.pitch <= most);
  }
  put(stream_at(stream), [rows = *copy](const FakeContext& in) { copy_rows(in.device, rows); });
}
void PointerGetAttributes(unsigned count, PointerAttribute* attributes, void** data, Pointer address) {
  const Locked all;
  const auto* const found = all->holding(pointer(address), 1);
  const int home = found == nullptr ? -1 : found->second.home();
  for (unsigned i = 0; i < count; ++i) {
    int value = 0;
    if (attributes[i] == kMemoryType) value = home >= 0 ? kMemoryDevice : found != nullptr ? 1 : 0;
    if (attributes[i] == kDeviceOrdinal) value = home >= 0 ? home : -2;
    std::memcpy(data[i], &value, sizeof value);
  }
}
void MemHostRegister(void* memory, size_t bytes, unsigned flags) {
  require(memory != nullptr && bytes != 0 && flags == (kRegisterPortable | kRegisterDeviceMap));
  require(fake().memory.count(true) < setting("FAKE_CUDA_LOCKABLE", 1 << 30), kOutOfMemory);
  const auto begin = reinterpret_cast<Pointer>(memory);
  const Locked all;
  const auto next = all->runs.lower_bound(begin + bytes);
  const bool overlaps = next != all->runs.begin() && std::prev(next)->first + std::prev(next)->second.bytes > begin;
  require(!overlaps, kHostMemoryAlreadyRegistered);
  all->runs[begin] = {Kind::kHost, bytes};
}
void MemHostUnregister(void* memory) {
  const Locked all;
  const auto found = all->runs.find(reinterpret_cast<Pointer>(memory));
  require(found != all->runs.end() && found->second.kind == Kind::kHost, kHostMemoryNotRegistered);
  all->runs.erase(found);
}
void MemHostGetDevicePointer(Pointer* at_device, void* memory, unsigned flags) {
  const Locked all;
  const auto* const found = all->holding(memory, 1);
  require(flags == 0 && found != nullptr && found->second.kind == Kind::kHost);
  *at_device = reinterpret_cast<Pointer>(memory);
}

// --- memory that other processes map
namespace {

void require_right(const AllocationProperties& properties) {
  require(properties.type == kAllocationPinned && properties.location.type == kLocationDevice &&
          is_device(properties.location.id) && properties.handle_types == kPosixFileDescriptor);
}

}  // namespace

void MemGetAllocationGranularity(size_t* bytes, const AllocationProperties* properties, int which) {
  require(which == kGranularityRecommended);
  require_right(*properties);
  *bytes = FakeMemory::kGranularity;
}
void MemCreate(Allocation* allocation, size_t bytes, const AllocationProperties* properties, unsigned long long flags) {
  require(setting("FAKE_CUDA_SHARES", 1) != 0, kNotSupported);
  require(flags == 0 && bytes % FakeMemory::kGranularity == 0);
  require_right(*properties);
  auto file = make_file(bytes, properties->location.id);
  const Locked all;
  all->handles[*allocation = ++all->last] = std::move(file);
}
void MemRelease(Allocation allocation) { require(Locked()->handles.erase(allocation) == 1); }
void MemExportToShareableHandle(void* handle, Allocation allocation, int type, unsigned long long flags) {
  const Locked all;
  const auto found = all->handles.find(allocation);
  require(type == kPosixFileDescriptor && flags == 0 && found != all->handles.end());
  const int descriptor = fcntl(found->second->descriptor, F_DUPFD_CLOEXEC, 0);
  require(descriptor >= 0);
  std::memcpy(handle, &descriptor, sizeof descriptor);
}
void MemImportFromShareableHandle(Allocation* allocation, void* handle, int type) {
  require(setting("FAKE_CUDA_IMPORTS", 1) != 0, kNotSupported);
  require(type == kPosixFileDescriptor);
  const int given = static_cast<int>(reinterpret_cast<intptr_t>(handle));
  auto file = std::make_shared<FakeFile>(fcntl(given, F_DUPFD_CLOEXEC, 0));
  require(file->header != nullptr);
  const Locked all;
  all->handles[*allocation = ++all->last] = std::move(file);
}
void MemAddressReserve(Pointer* memory, size_t bytes, size_t alignment, Pointer wanted, unsigned long long flags) {
  require(bytes != 0 && bytes % FakeMemory::kGranularity == 0 && alignment == 0 && wanted == 0 && flags == 0);
  *memory = Locked()->add({Kind::kReserved, bytes});
}
void MemAddressFree(Pointer memory, size_t bytes) {
  const Locked all;
  require(all->at(memory, Kind::kReserved).bytes == bytes);
  all->remove(memory, Kind::kReserved);
}
// Each mapping keeps its allocation.
void MemMap(Pointer memory, size_t bytes, size_t offset, Allocation allocation, unsigned long long flags) {
  const Locked all;
  Run& run = all->at(memory, Kind::kReserved);
  const auto found = all->handles.find(allocation);
  require(found != all->handles.end() && offset == 0 && flags == 0);
  require(run.bytes == bytes && found->second->header->bytes == bytes);
  run = {Kind::kMapped, bytes, 0, found->second};
}
// At once: what is still in streams and touches it ends the process.
void MemUnmap(Pointer memory, size_t bytes) {
  const Locked all;
  Run& run = all->at(memory, Kind::kMapped);
  require(run.bytes == bytes);
  run = {Kind::kReserved, bytes};
}
void MemSetAccess(Pointer memory, size_t bytes, const Access* access, size_t count) {
  require(count == 1 && access->flags == kReadWrite && access->location.type == kLocationDevice);
  const Locked all;
  Run& run = all->at(memory, Kind::kMapped);
  require(run.bytes == bytes);
  require(is_device(access->location.id) && maps(access->location.id, run.home()), kInvalidDevice);
  run.reaching |= bit(access->location.id);
}

}  // namespace rondo::testing::functions
