#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ring/base/types.h"
#include "rondo/dtype.h"
#include "rondo/op.h"

// How a list of all_reduces becomes operations. Pure: from what all ranks agree on, so that all come to the same.
namespace rondo {

// One all_reduce of a list, without its memory. All ranks must give equal ones.
struct TensorShape {
  uint64_t count = 0;  // elements
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;
  Algorithm asked = Algorithm::kAuto;
  bool fusable = true;  // false: an operation of its own, whatever its size
  bool any_op = false;  // `op` is this rank's own (CallFields): a list of several ops has none that is fusable then

  // Cannot wrap: the counts have passed check_call().
  uint64_t bytes() const { return count * dtype_bytes(dtype); }
};

// One operation of a list.
struct Bucket {
  std::vector<uint32_t> tensors;  // indices into the list, ascending. One: it runs where it lies; more: they are packed
  uint64_t count = 0;             // elements of all of them
};

// Tensors of one (dtype, op, algorithm) share buckets of at most `bucket_bytes`, in the order of the list; larger ones
// between them do not end a bucket. A tensor of a quarter of a bucket or more is an operation of its own: copying it
// costs more than what a call less saves (docs/guide.md has the measurement). It keeps its place in the order; a bucket
// comes where the next tensor finds it full, and those that stay open at the end, by their first tensors. Empty tensors
// are in none, unless all are: then the first is an operation, by which the ranks compare their lists. bucket_bytes 0:
// no sharing.
std::vector<Bucket> plan_buckets(std::span<const TensorShape> tensors, uint64_t bucket_bytes);

// The description of a list, which ranks compare by its hash, and which a mismatch shows.
struct TensorList {
  explicit TensorList(std::vector<TensorShape> shapes);
  std::vector<TensorShape> tensors;
  uint64_t hash = 0;  // never 0
  // "[float32 sum 10, 20, max 30]": type and operation where they change; cut after some 200 counts.
  std::string describe() const;
};

// The memory of one tensor of a list.
struct TensorMemory {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  uint64_t bytes = 0;
};

// Two tensors of which one's output overlaps memory of the other, by index, the smaller first: the operations of a list
// have no order. nullopt if there are none. Each tensor's own input and output are equal or disjoint.
std::optional<std::pair<size_t, size_t>> find_overlap(std::span<const TensorMemory> tensors);

}  // namespace rondo
