#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "transport/shared_memory.h"

namespace rondo {

// Memory handed out by Communicator::allocate(): windows where the rank shares memory with others, else plain pages.
// Any thread.
class Allocations {
 public:
  // `memory` (may be nullptr) outlives this. rank: for messages.
  Allocations(SharedMemory* memory, int rank) : memory_(memory), rank_(rank) {}
  ~Allocations();
  Allocations(const Allocations&) = delete;
  Allocations& operator=(const Allocations&) = delete;

  // Zeroed, aligned to a page. Throws Exception: kInvalid for 0 bytes, kSystem when memory runs out.
  void* allocate(size_t bytes);
  // nullptr is fine. Throws Exception(kInvalid) for what allocate() has not given.
  void deallocate(void* data);

 private:
  struct Run {
    std::shared_ptr<Window> window;  // shared with the transport, which finds it by address; nullptr: plain pages
    size_t bytes = 0;
  };
  static void release(void* data, const Run& run);

  SharedMemory* memory_;
  int rank_;
  std::mutex mutex_;
  std::map<void*, Run> runs_;
};

}  // namespace rondo
