#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bench/loop/group.h"
#include "bench/loop/pattern.h"

namespace rondo::bench {

// One rank's buffers for one exercise: where input and output lie, what they hold before a batch, and whether they hold
// the right thing after it. Pages are touched before the first use, so that no page fault is timed.
class Buffers {
 public:
  // The group gives the memory, and must outlive it. Throws what Group::allocate() throws.
  Buffers(Group& group, const Exercise& exercise, const Extent& extent);

  // Writes this rank's contribution and poisons what the operation must write.
  void refill();

  // The arguments of operation number `operation` (0-based) of a batch: an out-of-place all_reduce goes back and forth
  // between two buffers, everything else repeats the same call.
  Call call(uint32_t operation) const;

  // Wrong elements in this rank's output after `operations` operations since the refill.
  uint64_t wrong_after(uint32_t operations) const;

 private:
  struct Release {
    Group* group;
    void operator()(std::byte* memory) const { group->deallocate(memory); }
  };
  using Memory = std::unique_ptr<std::byte, Release>;
  // Poisoned memory, at least a byte: every page is touched before it is timed.
  static Memory allocate(Group& group, uint64_t bytes);
  // In place: moves input_ or output_ to this rank's block of the one buffer.
  void place_output();

  Exercise exercise_;
  Extent extent_;
  int rank_;
  // Bytes of an element.
  uint64_t width_;
  Memory first_, second_;
  uint64_t first_bytes_ = 0, second_bytes_ = 0;
  std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  // What refill() writes into the input; empty on a rank without one.
  std::vector<Region> contribution_;
  // The expectation of the last batch length: batches of one measurement are all of one length.
  struct Expected {
    uint32_t operations = 0;
    double tolerance = 0;
    std::vector<Region> regions;
  };
  mutable Expected expected_;
};

}  // namespace rondo::bench
