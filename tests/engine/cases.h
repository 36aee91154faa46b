#pragma once

#include <cstdint>
#include <vector>

#include "rondo/communicator.h"
#include "tests/support/collective_check.h"

namespace rondo::testing {

struct CaseList {
  int world = 1;
  std::vector<uint64_t>
      counts;  // of the whole buffer for collectives with a block a rank, where it is above 10 * world
  std::vector<int> roots;
};

// Every collective and every uneven variant x counts x roots x in place or not x aligned or not; dtypes take turns.
std::vector<CollectiveCase> all_shapes(const CaseList& list);
// Every dtype with every op that it has, for the three reductions.
std::vector<CollectiveCase> all_reductions(int world);
// {0, 1, world - 1, world, world + 1, 1237, large}
std::vector<uint64_t> usual_counts(int world, uint64_t large);
std::vector<int> all_ranks(int world);
// Those that take every call and every buffer; for those over windows, see window_cases.h.
std::vector<Algorithm> available_algorithms(Collective collective, const Topology& topology);

// Runs the case on this rank; throws what is wrong. Made by all ranks. All-reduces are compared bit for bit.
void run_case(Communicator& group, const CollectiveCase& what, Algorithm algorithm = Algorithm::kAuto,
              std::pmr::memory_resource* memory = std::pmr::get_default_resource());
// Communicator::allocate(), as a resource.
class RegisteredMemory final : public std::pmr::memory_resource {
 public:
  explicit RegisteredMemory(Communicator& group) : group_(group) {}

 private:
  void* do_allocate(size_t bytes, size_t alignment) override;
  void do_deallocate(void* data, size_t bytes, size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }
  Communicator& group_;
};
// Every case by each algorithm that there is for it.
void run_by_every_algorithm(Communicator& group, const std::vector<CollectiveCase>& cases);

}  // namespace rondo::testing
