#pragma once

#include <cstdint>
#include <span>

#include "rondo/call.h"
#include "rondo/collective.h"
#include "rondo/dtype.h"
#include "rondo/op.h"

namespace rondo {

// A collective call as its caller made it, not checked yet. Shapes: Communicator's call of that name.
struct CollectiveCall {
  Collective collective = Collective::kAllReduce;
  const void* input = nullptr;
  void* output = nullptr;  // broadcast: the buffer, and so is the input
  uint64_t count = 0;      // elements; ignored where counts are given
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;
  int root = -1;
  bool uneven = false;  // a v-variant: the spans below count; they are read while the call is checked, not after
  std::span<const uint64_t> input_counts{}, output_counts{};
  std::span<const uint64_t> input_displacements{}, output_displacements{};  // empty: one block after the other
  CallOptions options{};
};

// Where the blocks of a v-variant lie, one a rank; `data` alone: one block of CollectiveCall::count elements.
template <typename Data>
struct PlacedBlocks {
  Data* data = nullptr;
  std::span<const uint64_t> counts{}, displacements{};
};

inline CollectiveCall uneven_call(CollectiveCall call, const PlacedBlocks<const void>& input,
                                  const PlacedBlocks<void>& output) {
  call.uneven = true;
  call.input = input.data;
  call.input_counts = input.counts;
  call.input_displacements = input.displacements;
  call.output = output.data;
  call.output_counts = output.counts;
  call.output_displacements = output.displacements;
  return call;
}

}  // namespace rondo
