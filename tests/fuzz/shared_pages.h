#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "ring/base/check.h"

namespace rondo::fuzz {

// Zeroed memory of exactly so many bytes, on a page: as a mapping, but the address sanitizer watches its borders.
class SharedPages {
 public:
  explicit SharedPages(size_t bytes) : bytes_(bytes) {
    constexpr size_t kPage = 4096;
    void* memory = nullptr;
    RONDO_CHECK(::posix_memalign(&memory, kPage, bytes) == 0, "memory");
    memory_.reset(static_cast<std::byte*>(memory), std::free);
    std::memset(memory, 0, bytes);
  }
  std::byte* data() const { return memory_.get(); }
  std::shared_ptr<void> owner() const { return memory_; }

  // What a hostile peer may do at any time: 8 bytes anywhere.
  void write(size_t offset, uint64_t value) { std::memcpy(data() + offset % (bytes_ - 7), &value, sizeof value); }

 private:
  size_t bytes_;
  std::shared_ptr<std::byte> memory_;  // shared with the link or stream over it
};

}  // namespace rondo::fuzz
