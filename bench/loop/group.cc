#include "bench/loop/group.h"

#include <cstdlib>
#include <new>

namespace rondo::bench {
namespace {

// A page: what an allocator gives for large buffers. The smallest buffers get one as well.
constexpr uint64_t kAlignment = 4096;

}  // namespace

void Group::run_parts(const Call& call, std::span<const uint64_t> counts) {
  Call part = call;
  const uint64_t width = dtype_bytes(call.dtype);
  for (uint64_t count : counts) {
    part.count = count;
    run(part);
    part.input += count * width;
    part.output += count * width;
  }
}

std::byte* Group::allocate(uint64_t bytes) {
  const uint64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void Group::deallocate(std::byte* memory) { std::free(memory); }

}  // namespace rondo::bench
