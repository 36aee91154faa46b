#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace rondo {

// `count` pieces of memory of `bytes` each, allocated when first used and kept. The pages of a slot that carries small
// slices are never touched beyond them, so the memory in use follows the traffic. Slots begin at a cache line: two
// slots share none.
class Slots {
 public:
  Slots(uint32_t count, uint32_t bytes) : bytes_(bytes), slots_(count) {}

  // The slot of slice `index`: the same one for each `count` slices.
  std::byte* at(uint64_t index) {
    auto& slot = slots_[index % slots_.size()];
    if (!slot) slot.reset(static_cast<std::byte*>(::operator new(bytes_ == 0 ? 1 : bytes_, kAlignment)));
    return slot.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Delete {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };
  uint32_t bytes_;
  std::vector<std::unique_ptr<std::byte, Delete>> slots_;
};

}  // namespace rondo
