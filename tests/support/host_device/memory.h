#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "kernels/device.h"

namespace rondo::testing {

// Memory of devices that are none. What the program gets is an address that it cannot touch: who uses it without the
// device's functions dies. Any thread.
class HostDeviceMemory {
 public:
  // nullptr: no memory.
  void* allocate(size_t bytes, int device);
  bool release(void* memory);
  // Memory that other processes map: `descriptor` stands for it. nullptr: no memory, or no such descriptor. kIpc: who
  // reaches it after its maker has released it ends.
  void* allocate_shared(size_t bytes, int device, MemorySharing sharing, int* descriptor);
  void* map_shared(int descriptor, size_t bytes, int device, MemorySharing sharing);
  // The device whose memory the descriptor stands for, or the address is of; -1: of none.
  static int home_of(int descriptor);
  int home_of(const void* address) const;
  // The device that [address, address + bytes) is memory of; -1: of none.
  int device_of(const void* address, size_t bytes = 1) const;

  // As often as it is unlocked.
  void lock_host(void* memory, size_t bytes);
  bool unlock_host(void* memory);
  int locked() const;  // pieces
  int held() const;    // pieces of device memory, made or mapped here

  // Where a copy or a kernel reaches [address, address + bytes). Ends the process if it is neither memory of a device
  // nor locked host memory.
  std::byte* reach(const void* address, size_t bytes) const;

 private:
  struct Run {
    std::byte* data;  // the same memory, mapped for the device
    size_t bytes;
    int device;                             // for which it is mapped
    int home;                               // whose memory it is
    std::atomic<uint32_t>* gone = nullptr;  // of kIpc, behind the memory: 1 once its maker has released it
    bool made_here = false;
  };
  struct Locked {
    size_t bytes = 0;
    int times = 0;
  };
  void* map(int file, size_t bytes, int device, MemorySharing sharing, bool made_here);

  mutable std::mutex mutex_;
  std::map<uintptr_t, Run> device_;     // by the program's address
  std::map<uintptr_t, Locked> locked_;  // host memory
};

}  // namespace rondo::testing
