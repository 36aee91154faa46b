#include "tests/support/host_device/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "ring/base/check.h"

namespace rondo::testing {
namespace {

// The entry whose run holds all of it, or end().
template <class Map, class Bytes>
typename Map::const_iterator holding(const Map& runs, const void* address, size_t bytes, Bytes bytes_of) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto found = runs.upper_bound(at);
  if (found == runs.begin()) return runs.end();
  --found;
  const size_t size = bytes_of(found->second), offset = at - found->first;
  return offset <= size && bytes <= size - offset ? found : runs.end();
}

const std::string kName = "host_device_";  // and the number of the device
constexpr off_t kPageBytes = 4096;
constexpr size_t kMostBytes = size_t{1} << 40;

off_t page_after(size_t bytes) { return (static_cast<off_t>(bytes) + kPageBytes - 1) / kPageBytes * kPageBytes; }

}  // namespace

void* HostDeviceMemory::map(int file, size_t bytes, int device, MemorySharing sharing, bool made_here) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  void* address = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0);
  if (data == MAP_FAILED || address == MAP_FAILED) return nullptr;
  Run run{static_cast<std::byte*>(data), bytes, device, home_of(file), nullptr, made_here};
  if (sharing == MemorySharing::kIpc) {
    void* const page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, page_after(bytes));
    if (page == MAP_FAILED) return nullptr;
    run.gone = static_cast<std::atomic<uint32_t>*>(page);
  }
  std::lock_guard lock(mutex_);
  device_[reinterpret_cast<uintptr_t>(address)] = run;
  return address;
}

void* HostDeviceMemory::allocate(size_t bytes, int device) {
  int file = -1;
  void* const address = allocate_shared(bytes, device, MemorySharing::kDescriptor, &file);
  if (address != nullptr) close(file);
  return address;
}

void* HostDeviceMemory::allocate_shared(size_t bytes, int device, MemorySharing sharing, int* descriptor) {
  const int file = memfd_create((kName + std::to_string(device)).c_str(), MFD_CLOEXEC);
  const bool sized = file >= 0 && bytes < kMostBytes && ftruncate(file, page_after(bytes) + kPageBytes) == 0;
  void* const address = sized ? map(file, bytes, device, sharing, true) : nullptr;
  if (address == nullptr && file >= 0) close(file);
  *descriptor = address != nullptr ? file : -1;
  return address;
}

void* HostDeviceMemory::map_shared(int descriptor, size_t bytes, int device, MemorySharing sharing) {
  return map(descriptor, bytes, device, sharing, false);
}

bool HostDeviceMemory::release(void* memory) {
  std::lock_guard lock(mutex_);
  const auto found = device_.find(reinterpret_cast<uintptr_t>(memory));
  if (found == device_.end()) return false;
  const Run& run = found->second;
  if (run.gone != nullptr) {
    RONDO_CHECK(run.made_here || run.gone->load() == 0, "memory is released by its maker before others let go of it");
    if (run.made_here) run.gone->store(1);
    munmap(run.gone, kPageBytes);
  }
  munmap(run.data, run.bytes);
  munmap(memory, run.bytes);
  device_.erase(found);
  return true;
}

int HostDeviceMemory::home_of(int descriptor) {
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  char target[64] = {};
  if (readlink(link.c_str(), target, sizeof target - 1) < 0) return -1;
  const char* const name = std::strstr(target, kName.c_str());
  return name == nullptr ? -1 : std::atoi(name + kName.size());
}

int HostDeviceMemory::home_of(const void* address) const {
  std::lock_guard lock(mutex_);
  const auto found = holding(device_, address, 1, [](const Run& run) { return run.bytes; });
  return found == device_.end() ? -1 : found->second.home;
}

int HostDeviceMemory::device_of(const void* address, size_t bytes) const {
  std::lock_guard lock(mutex_);
  const auto found = holding(device_, address, bytes, [](const Run& run) { return run.bytes; });
  return found == device_.end() ? -1 : found->second.device;
}

void HostDeviceMemory::lock_host(void* memory, size_t bytes) {
  std::lock_guard lock(mutex_);
  Locked& locked = locked_[reinterpret_cast<uintptr_t>(memory)];
  locked.bytes = bytes;
  ++locked.times;
}

bool HostDeviceMemory::unlock_host(void* memory) {
  std::lock_guard lock(mutex_);
  const auto found = locked_.find(reinterpret_cast<uintptr_t>(memory));
  if (found == locked_.end()) return false;
  if (--found->second.times == 0) locked_.erase(found);
  return true;
}

int HostDeviceMemory::locked() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(locked_.size());
}

int HostDeviceMemory::held() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(device_.size());
}

std::byte* HostDeviceMemory::reach(const void* address, size_t bytes) const {
  std::lock_guard lock(mutex_);
  const auto run = holding(device_, address, bytes, [](const Run& one) { return one.bytes; });
  if (run != device_.end()) {
    const bool gone = run->second.gone != nullptr && run->second.gone->load() != 0;
    RONDO_CHECK(!gone, "a device reaches memory that its maker has released");
    return run->second.data + (reinterpret_cast<uintptr_t>(address) - run->first);
  }
  const auto host = holding(locked_, address, bytes, [](const Locked& one) { return one.bytes; });
  RONDO_CHECK(host != locked_.end(), "a device reaches memory that is neither its own nor locked host memory");
  return static_cast<std::byte*>(const_cast<void*>(address));
}

}  // namespace rondo::testing
