#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "transport/shared_memory.h"

namespace rondo {

// Memory handed out by Communicator::allocate(): windows where this rank shares memory with others, else plain
// pages. All epochs of a communicator share it. Any thread.
class Allocations {
 public:
  // `memory` (may be nullptr) outlives all calls of allocate(). rank: for messages. before: the memory of a
  // communicator that has grown into this one; deallocate() takes that, too. null: there is none.
  Allocations(SharedMemory* memory, int rank, std::shared_ptr<Allocations> before = {})
      : memory_(memory), rank_(rank), before_(std::move(before)) {}
  ~Allocations();
  Allocations(const Allocations&) = delete;
  Allocations& operator=(const Allocations&) = delete;

  // Zeroed, aligned to a page. Throws Exception: kInvalid for 0 bytes, kSystem when memory runs out.
  void* allocate(size_t bytes);
  // Gives memory back; nullptr is fine. Throws Exception(kInvalid) for memory that allocate() has not given.
  void deallocate(void* data);
  bool empty() const;

 private:
  struct Run {
    std::shared_ptr<Window> window;  // shared with the transport, which finds it by address; nullptr: plain pages
    size_t bytes = 0;
  };
  // Unmaps plain pages. A window goes with the last reference to it.
  static void release(void* data, const Run& run);

  SharedMemory* memory_;
  int rank_;
  const std::shared_ptr<Allocations> before_;  // shared with the communicator that has grown
  mutable std::mutex mutex_;
  // By the address that was handed out.
  std::map<void*, Run> runs_;
};

}  // namespace rondo
