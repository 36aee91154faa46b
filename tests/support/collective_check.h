#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <string>
#include <vector>

#include "rondo/communicator.h"

namespace rondo::testing {

// One collective call with inputs whose results are exact in every dtype, and the reference to compare with.
struct CollectiveCase {
  Collective collective = Collective::kAllReduce;
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;
  int world = 1;
  int root = 0;
  uint64_t count = 0;            // as in Call
  std::vector<uint64_t> counts;  // not empty: the uneven variant; counts[r] is the block of rank r
  bool in_place = false;         // where the collective has it
  size_t misalign = 0;           // bytes that both buffers begin behind an aligned address
  uint64_t seed = 0;

  std::string describe() const;
};

// One rank's side of a case: owns the buffers.
class CollectiveRank {
 public:
  // Its buffers come from `memory`, which outlives it.
  CollectiveRank(const CollectiveCase& what, int rank,
                 std::pmr::memory_resource* memory = std::pmr::get_default_resource());
  CollectiveRank(CollectiveRank&&) = default;

  // Refers to this object's memory.
  Call call() const;
  // "" if the output is what it should be and nothing else was written; else what is wrong.
  std::string check() const;
  // The output as it is, for comparing ranks bit for bit.
  std::vector<std::byte> output() const;
  // Overwrites the buffers, like a caller who uses them for something else.
  void refill();

  // Lengths of the buffers; 0 where this rank has none.
  struct Elements {
    uint64_t input = 0;
    uint64_t output = 0;
  };
  Elements elements() const;

 private:
  uint64_t in_place_offset() const;
  double expected(uint64_t element) const;
  bool expects_output() const;

  CollectiveCase case_;
  int rank_;
  size_t element_bytes_;
  std::pmr::vector<std::byte> input_memory_;
  std::pmr::vector<std::byte> output_memory_;
  std::vector<std::byte> original_;  // of output_memory_
  std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  std::vector<uint64_t> mine_, theirs_;  // all_to_all_v
};

}  // namespace rondo::testing
