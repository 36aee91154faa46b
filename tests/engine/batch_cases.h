#pragma once

#include <cstdint>
#include <vector>

#include "rondo/communicator.h"
#include "tests/support/collective_check.h"

namespace rondo::testing {

// Buckets so small that lists of a few kilobytes fill several.
inline constexpr uint64_t kTestBucketBytes = 16 * 1024;

// One rank's side of a list of all_reduces with one op: mixed types and sizes from nothing to several buckets, in place
// and not, aligned and not. Equal on all ranks for a seed.
class ListRank {
 public:
  ListRank(uint64_t seed, Op op, int rank, int world);
  std::vector<TensorRef> tensors() const;
  Op op() const { return op_; }
  // Throws what is wrong, or differs between the ranks. Made by all ranks.
  void expect_right(Communicator& group) const;

 private:
  uint64_t seed_;
  Op op_;
  std::vector<CollectiveCase> cases_;
  std::vector<CollectiveRank> ranks_;
};

// Lists of every op, by one call each, blocking and not; then a batch of every collective with messages, in whose
// middle every rank sends and receives in an order of its own. Throws what is wrong. Made by all ranks.
void run_lists(Communicator& group, uint64_t seed);
void run_call_group(Communicator& group, uint64_t seed);

}  // namespace rondo::testing
