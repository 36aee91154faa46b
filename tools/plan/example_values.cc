#include "tools/plan/example_values.h"

#include "ring/plan/layout.h"

namespace rondo {
namespace {

// One vector is cut into the plan's blocks.
bool cut(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kBroadcast;
}

// Data of different ranks, and blocks for different ranks, have different numbers: one in a wrong place shows.
int64_t number(const Plan& plan, int rank, uint32_t block, int64_t element, int64_t elements) {
  switch (plan.collective) {
    case Collective::kScatter:
      return block;
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return (int64_t{rank} * plan.world + block) * elements + element + 1;
    default:
      return rank * elements + element + 1;
  }
}

}  // namespace

// A sum is exact: numbers are small integers.
std::vector<int64_t> example_numbers(const Plan& plan, uint32_t block, const std::vector<int>& ranks, int elements) {
  const auto n = static_cast<uint64_t>(elements);
  const Extent part = cut(plan.collective) ? even_blocks(n, plan.blocks, 1)[block] : Extent{0, n};
  std::vector<int64_t> numbers(part.count);
  for (const int rank : ranks) {
    for (uint64_t i = 0; i < part.count; ++i) {
      numbers[i] += number(plan, rank, block, static_cast<int64_t>(part.offset + i), elements);
    }
  }
  return numbers;
}

}  // namespace rondo
