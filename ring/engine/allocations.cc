#include "ring/engine/allocations.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <new>

#include "rondo/error.h"

namespace rondo {

Allocations::~Allocations() {
  for (const auto& [data, run] : runs_) release(data, run);
}

// Memory that cannot be entered into the list is given back: nobody could deallocate() it.
void* Allocations::allocate(size_t bytes) try {
  if (bytes == 0) throw Exception(ErrorCode::kInvalid, fmt::format("allocate on rank {}: 0 bytes", rank_));
  Run run{nullptr, bytes};
  void* data = nullptr;
  if (memory_ != nullptr) {
    run.window = memory_->make(bytes);
    data = run.window->data();
  } else {
    data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      throw Exception(ErrorCode::kSystem, fmt::format("allocate on rank {}: no memory for {} bytes", rank_, bytes));
    }
  }
  std::lock_guard lock(mutex_);
  try {
    runs_.emplace(data, run);
  } catch (...) {
    release(data, run);
    throw;
  }
  return data;
} catch (const std::bad_alloc&) {
  throw Exception(ErrorCode::kSystem, fmt::format("allocate on rank {}: out of memory", rank_));
}

// It is taken out of the list under the lock and released after it: of two threads that give the same memory
// back one gets the error.
void Allocations::deallocate(void* data) {
  if (data == nullptr) return;
  Run run;
  {
    std::lock_guard lock(mutex_);
    const auto found = runs_.find(data);
    if (found == runs_.end() && before_) return before_->deallocate(data);
    if (found == runs_.end()) {
      throw Exception(ErrorCode::kInvalid,
                      fmt::format("deallocate on rank {}: {} is no memory that this communicator has allocated, or it "
                                  "was given back before",
                                  rank_, data));
    }
    run = std::move(found->second);
    runs_.erase(found);
  }
  release(data, run);
}

bool Allocations::empty() const {
  std::lock_guard lock(mutex_);
  return runs_.empty() && (!before_ || before_->empty());
}

void Allocations::release(void* data, const Run& run) {
  if (!run.window) ::munmap(data, run.bytes);
}

}  // namespace rondo
