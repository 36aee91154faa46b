#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "kernels/device/driver_api.h"

namespace rondo::testing {

// Device memory, in a file, as long as somebody has it: a page that says what it is, and the memory. Other processes
// map it by its descriptor.
struct FakeFile {
  // Takes the descriptor.
  explicit FakeFile(int given);
  ~FakeFile();
  FakeFile(const FakeFile&) = delete;
  struct Header {
    uint64_t magic;
    size_t bytes;
    int home;  // the device whose memory it is
  };
  const int descriptor;
  size_t mapped = 0;
  Header* header = nullptr;  // nullptr: it is no such file
  std::byte* data = nullptr;
};
// Throws Refused.
std::shared_ptr<FakeFile> make_file(size_t bytes, int home);

// Memory of devices that are none. What the program gets is an address that it cannot touch: who uses it without the
// driver dies. Any thread; the driver's functions (memory_functions.cc) hold the lock.
struct FakeMemory {
  static constexpr size_t kGranularity = 2u << 20;

  // Locked host memory; of MemAlloc; of MemAddressReserve, and what MemMap has put there.
  enum class Kind { kHost, kAllocated, kReserved, kMapped };
  struct Run {
    Kind kind;
    size_t bytes;
    uint32_t reaching = 0;  // a bit for each device that may
    std::shared_ptr<FakeFile> file = nullptr;
    int home() const { return file == nullptr ? -1 : file->header->home; }
  };
  // The rest is for those who hold the lock. Throws Refused: there is no such run.
  Run& at(cuda::Pointer memory, Kind kind);
  // At an address that nobody has.
  cuda::Pointer add(Run run);
  void remove(cuda::Pointer memory, Kind kind);
  // The run that has all of it; nullptr: none.
  const std::pair<const uintptr_t, Run>* holding(const void* address, size_t bytes) const;

  // The device whose memory an address is of; -1: of none.
  int home_of(const void* address) const;
  int count(bool locked) const;  // pieces of locked host memory; or of device memory, and handles
  // Where a kernel of the device, or a copy in one of its streams, reaches [address, address + bytes). Ends the process
  // if it is neither memory that it may reach nor locked host memory. Copies go between devices that are no peers, too.
  enum class By : bool { kKernel, kCopy };
  std::byte* reach(const void* address, size_t bytes, int device, By by) const;

  mutable std::mutex mutex;
  std::map<uintptr_t, Run> runs;  // by the program's address
  std::map<cuda::Allocation, std::shared_ptr<FakeFile>> handles;
  cuda::Allocation last = 0;
};

}  // namespace rondo::testing
