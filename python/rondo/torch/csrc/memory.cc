#include "csrc/memory.h"

#include <algorithm>
#include <iterator>

#include "csrc/errors.h"

namespace rondo_torch {

std::shared_ptr<void> Memory::allocate(size_t bytes) {
  std::lock_guard lock(mutex_);
  if (ended_) fail("registered memory: this process group has been destroyed");
  void* data = nullptr;
  check(rondo_allocate(comm_, bytes, &data));
  ++blocks_;
  return {data, [self = shared_from_this(), forks = forks_so_far()](void* block) {
            // A forked child has the memory, not the communicator.
            if (forks == forks_so_far()) self->give_back(block);
          }};
}

// The destructor of a tensor cannot throw: what the library says here was said by the calls before.
void Memory::give_back(void* data) {
  {
    std::lock_guard lock(mutex_);
    rondo_deallocate(comm_, data);
    --blocks_;
    if (!closed_ || blocks_ > 0) return;
  }
  rondo_destroy(comm_);
}

// Without the lock where the library waits for other ranks: a thread that frees a tensor may hold Python's lock, which
// the interrupt check of this wait needs.
void Memory::end() {
  bool used = false;
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    used = blocks_ > 0;
  }
  if (!used) return check(rondo_destroy(comm_));
  const rondo_result_t code = rondo_close(comm_);
  const std::exception_ptr failed = code == RONDO_OK ? nullptr : failure(code);
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    used = blocks_ > 0;
  }
  if (!used) rondo_destroy(comm_);
  if (failed) std::rethrow_exception(failed);
}

Arena::Arena(const std::shared_ptr<Memory>& memory, size_t bytes)
    : block_(memory->allocate(bytes)), bytes_(bytes), gaps_{{0, bytes}} {}

// The first gap that is large enough: tensors of a forward pass come and go in the same order, so that each gets the
// same memory every time.
std::shared_ptr<void> Arena::allocate(size_t bytes) {
  constexpr size_t kAlignment = 64;  // torch's gAlignment
  const size_t taken = std::max<size_t>((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
  std::lock_guard lock(mutex_);
  const auto gap = std::find_if(gaps_.begin(), gaps_.end(), [&](const auto& entry) { return entry.second >= taken; });
  if (gap == gaps_.end()) return nullptr;
  const auto [begin, length] = *gap;
  gaps_.erase(gap);
  if (length > taken) gaps_.emplace(begin + taken, length - taken);
  return {static_cast<char*>(block_.get()) + begin,
          [self = shared_from_this(), begin = begin, taken](void*) { self->give_back(begin, taken); }};
}

void Arena::give_back(size_t begin, size_t bytes) {
  std::lock_guard lock(mutex_);
  auto gap = gaps_.emplace(begin, bytes).first;
  if (const auto next = std::next(gap); next != gaps_.end() && begin + bytes == next->first) {
    gap->second += next->second;
    gaps_.erase(next);
  }
  if (gap == gaps_.begin()) return;
  if (const auto before = std::prev(gap); before->first + before->second == begin) {
    before->second += gap->second;
    gaps_.erase(gap);
  }
}

}  // namespace rondo_torch
