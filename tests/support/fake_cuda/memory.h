#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "kernels/device/driver_api.h"

namespace rondo::testing {

// Memory of devices that are none. What the program gets is an address that it cannot touch: who uses it without the
// driver dies. Any thread. nullptr, 0, false: refused.
class FakeMemory {
 public:
  static constexpr size_t kGranularity = 2u << 20;

  // MemAlloc and MemFree, IpcOpenMemHandle and IpcCloseMemHandle. Who reaches memory of IPC after its maker has
  // released it ends.
  void* allocate(size_t bytes, int device);
  bool release(void* memory);
  bool get_handle(void* memory, cuda::IpcHandle& handle) const;
  void* open_handle(const cuda::IpcHandle& handle, int device);
  bool close_handle(void* memory);
  static int home_of(const cuda::IpcHandle& handle);

  // Allocations that are mapped piece by piece; each handle holds one of them, and so does each mapping.
  cuda::Allocation create(size_t bytes, int device);
  int hand_out(cuda::Allocation allocation) const;  // a descriptor; -1: refused
  cuda::Allocation take_in(int descriptor);
  bool drop(cuda::Allocation allocation);
  void* reserve(size_t bytes);
  bool unreserve(void* memory, size_t bytes);
  bool map(void* memory, size_t bytes, cuda::Allocation allocation);
  bool unmap(void* memory, size_t bytes);
  bool give_access(void* memory, size_t bytes, int device);

  // The device whose memory an address is of; -1: of none.
  int home_of(const void* address) const;
  // False: some of it is locked already; it is not.
  bool lock_host(void* memory, size_t bytes);
  bool unlock_host(void* memory);
  bool is_locked(const void* address) const;
  int locked() const;  // pieces
  int held() const;    // pieces of device memory, made, reserved or mapped here, and handles

  // Where a kernel of the device, or a copy in one of its streams, reaches [address, address + bytes). Ends the process
  // if it is neither memory that it may reach nor locked host memory. Copies go between devices that are no peers, too.
  enum class By : bool { kKernel, kCopy };
  std::byte* reach(const void* address, size_t bytes, int device, By by) const;
  // Kernels of the device reach what is allocated on the other.
  void enable_peer(int device, int other);
  // The virtual time of a word where it is reached, which all that map it share, and its device; nullptr, -1: the
  // host's.
  struct Times {
    std::atomic<uint64_t>* time;
    int home;
  };
  Times times_of(const uint32_t* reached) const;
  // Zeroes that take no memory: so many of the first bytes.
  size_t clear(void* memory, size_t bytes);

 private:
  enum class Kind { kAllocated, kOpened, kMapped };
  // A file, as long as somebody has it.
  struct File {
    explicit File(int number) : file(number) {}
    ~File();
    const int file;
  };
  struct Run {
    Kind kind;
    std::byte* data;  // the same memory, mapped for the devices, and what is behind it
    size_t bytes;
    int home;           // the device whose memory it is
    uint32_t reaching;  // a bit for each device that may
    std::shared_ptr<File> file;
    // Behind the memory: 1 once its maker of MemAlloc has released it; and a time for each word.
    std::atomic<uint32_t>& gone() const;
  };
  void* add(Kind kind, std::shared_ptr<File> file, size_t bytes, int device);
  bool remove(void* memory, Kind kind);

  mutable std::mutex mutex_;
  std::map<uintptr_t, Run> runs_;       // by the program's address
  uint32_t peers_[32] = {};             // by device: a bit for each that it reaches
  std::map<uintptr_t, size_t> ranges_;  // reserved
  std::map<uintptr_t, size_t> locked_;  // host memory
  struct Handle {
    std::shared_ptr<File> file;
    size_t bytes;
  };
  std::map<cuda::Allocation, Handle> handles_;
  cuda::Allocation last_ = 0;
};

}  // namespace rondo::testing
