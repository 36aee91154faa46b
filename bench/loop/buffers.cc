#include "bench/loop/buffers.h"

#include <algorithm>

#include "bench/loop/contents.h"

namespace rondo::bench {
namespace {

bool in_place(const Exercise& exercise) { return exercise.placement == Placement::kInPlace; }

// Broadcast and scatter read on the root only.
bool has_input(const Exercise& exercise, int rank) {
  const bool from_root = exercise.benchmark == Benchmark::kBroadcast || exercise.benchmark == Benchmark::kScatter;
  return !from_root || rank == exercise.root;
}

}  // namespace

Buffers::Memory Buffers::allocate(Group& group, uint64_t bytes) {
  const uint64_t at_least = std::max<uint64_t>(bytes, 1);
  Memory memory(group.allocate(at_least), Release{&group});
  poison({memory.get(), at_least});
  return memory;
}

Buffers::Buffers(Group& group, const Exercise& exercise, const Extent& extent)
    : exercise_(exercise),
      extent_(extent),
      rank_(group.rank()),
      width_(dtype_bytes(exercise.dtype)),
      first_(nullptr, Release{&group}),
      second_(nullptr, Release{&group}) {
  const uint64_t input_bytes = extent.input_elements * width_;
  const uint64_t output_bytes = extent.output_elements * width_;
  first_bytes_ = in_place(exercise) ? std::max(input_bytes, output_bytes) : input_bytes;
  first_ = allocate(group, first_bytes_);
  input_ = output_ = first_.get();
  if (!in_place(exercise)) {
    second_bytes_ = output_bytes;
    second_ = allocate(group, second_bytes_);
    output_ = second_.get();
  } else {
    place_output();
  }
  if (extent.input_elements > 0 && has_input(exercise, rank_)) {
    contribution_.push_back({0, extent.input_elements, 0, contribution(exercise, rank_)});
  }
}

// In place, the smaller of the two buffers is this rank's block of the larger one (communicator.h).
void Buffers::place_output() {
  const bool at_root = rank_ == exercise_.root;
  const uint64_t own_block = static_cast<uint64_t>(rank_) * extent_.count * width_;
  switch (exercise_.benchmark) {
    case Benchmark::kAllGather:
      input_ += own_block;
      break;
    case Benchmark::kGather:
      if (at_root) input_ += own_block;
      break;
    case Benchmark::kReduceScatter:
      output_ += own_block;
      break;
    case Benchmark::kScatter:
      if (at_root) output_ += own_block;
      break;
    default:
      break;
  }
}

// Output is poisoned first: a collective that writes nothing must not pass the check with the last batch's result.
void Buffers::refill() {
  poison({first_.get(), first_bytes_});
  poison({second_.get(), second_bytes_});
  for (const Region& region : contribution_) write_region(input_, exercise_.dtype, region);
}

Call Buffers::call(uint32_t operation) const {
  Call call{exercise_.benchmark, input_, output_, extent_.count, exercise_.dtype, exercise_.op, exercise_.root};
  const bool alternates = exercise_.benchmark == Benchmark::kAllReduce && !in_place(exercise_);
  if (alternates && operation % 2 == 1) {
    call.input = output_;
    call.output = input_;
  }
  return call;
}

// Each operation may take the last one's result, so the expectation depends on the number of operations. It is computed
// once for a length of batches.
uint64_t Buffers::wrong_after(uint32_t operations) const {
  if (expected_.operations != operations) {
    expected_ = {operations, tolerance(exercise_, operations), expected_output(exercise_, extent_, rank_, operations)};
  }
  const std::byte* output = call(operations - 1).output;
  uint64_t wrong = 0;
  for (const Region& region : expected_.regions) {
    wrong += count_wrong(output, exercise_.dtype, region, expected_.tolerance);
  }
  return wrong;
}

}  // namespace rondo::bench
