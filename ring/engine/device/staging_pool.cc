#include "ring/engine/device/staging_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace rondo {
namespace {

// Sizes are powers of two, so that calls of different sizes find each other's memory again.
constexpr size_t kLeastBytes = 64 * 1024;
// A region's word lies before its data, on a page of its own, so that the data is aligned as all registered
// memory is.
constexpr size_t kHeaderBytes = 4096, kLengthAt = 64;

}  // namespace

StagingPool::Region StagingPool::take(size_t bytes) {
  const size_t rounded = std::bit_ceil(std::max(bytes, kLeastBytes));
  {
    std::lock_guard lock(mutex_);
    ++taken_;
    if (const auto found = free_.find(rounded); found != free_.end()) return free_.extract(found).mapped();
  }
  std::byte* memory = nullptr;
  try {
    memory = static_cast<std::byte*>(allocations_.allocate(kHeaderBytes + rounded));
    driver_->check(driver_->lock_host(device_, memory, kHeaderBytes + rounded), "locking host memory");
  } catch (...) {
    allocations_.deallocate(memory);
    std::lock_guard lock(mutex_);
    --taken_;
    throw;
  }
  return {memory + kHeaderBytes, rounded, reinterpret_cast<uint32_t*>(memory),
          reinterpret_cast<uint64_t*>(memory + kLengthAt)};
}

void StagingPool::give_back(const Region& region) {
  std::lock_guard lock(mutex_);
  --taken_;
  free_.emplace(region.bytes, region);
}

bool StagingPool::free_all() {
  std::unique_lock lock(mutex_);
  if (taken_ > 0) return false;
  const auto regions = std::exchange(free_, {});
  lock.unlock();  // to unlock memory waits for streams
  for (const auto& [bytes, region] : regions) {
    driver_->unlock_host(region.word);
    allocations_.deallocate(region.word);
  }
  return true;
}

}  // namespace rondo
