#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/device/device_driver.h"
#include "ring/engine/allocations.h"

namespace rondo {

// Locked host memory that device memory is staged through. It is registered memory, so that ranks of one host
// work on it where it lies. Any thread; but take() and free_all() call the device's runtime, which functions in
// a stream must not. StreamCalls owns it.
class StagingPool {
 public:
  // device: any one that is in use. memory (may be nullptr) outlives this.
  StagingPool(std::shared_ptr<const DeviceDriver> driver, int device, SharedMemory* memory, int rank)
      : driver_(std::move(driver)), device_(device), allocations_(memory, rank) {}
  // Does not free what is still taken: the device may be at work on it.
  ~StagingPool() = default;
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  // The memory of a piece. One stream at a time uses its word.
  struct Region {
    std::byte* data = nullptr;
    size_t bytes = 0;
    uint32_t* word = nullptr;    // which a stream waits for; it only grows, modulo 2^32
    uint64_t* length = nullptr;  // of a message that has come into it, written before the word
  };
  // A region of at least `bytes`, used before or new. Throws Exception(kSystem).
  Region take(size_t bytes);
  // Calls no runtime, so that functions in a stream may call it.
  void give_back(const Region& region);
  // Frees all regions. False: some are still taken, and nothing is freed.
  bool free_all();

 private:
  std::shared_ptr<const DeviceDriver> driver_;  // shared with the communicator's device side
  const int device_;
  Allocations allocations_;
  std::mutex mutex_;
  std::multimap<size_t, Region> free_;  // by bytes
  int taken_ = 0;
};

}  // namespace rondo
