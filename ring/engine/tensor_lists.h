#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "ring/engine/call/call.h"
#include "ring/engine/call/fusion.h"
#include "ring/engine/collective/collective_operation.h"

namespace rondo {

class CommunicatorState;

// A call of a batch or list.
struct BatchCall {
  CheckedCall call;
  CallBuffers buffers;
  bool fusable = true;
  std::optional<void*> stream = {};  // CallOptions::stream
};

// Factors, and ops where ranks may differ in them, are each rank's own, so they cannot say which calls of a batch run
// together.
inline bool differs_by_rank(Op op, const CallOptions& options) { return op == Op::kPremulSum || options.any_op; }

// The all_reduce of one tensor of a list.
Call all_reduce_of(const TensorRef& tensor, Op op, const CallOptions& options);

// Calls that are submitted together, as the operations that they become: consecutive all_reduces as few as fusion.h
// says. Any thread.
class TensorLists {
 public:
  explicit TensorLists(CommunicatorState& group) : group_(group) {}

  // Checks the call, but not its memory, and keeps none of its spans.
  BatchCall item_of(const Call& call) const;
  // Checks an all_reduce of each tensor, and appends them. Throws Exception that names the tensor.
  void append(std::vector<BatchCall>& items, std::span<const TensorRef> tensors, Op op, const CallOptions& options,
              bool fusable) const;
  // Not submitted yet. Throws Exception(kInvalid) where all_reduces that run together overlap.
  std::vector<OperationRef<CollectiveOperation>> operations_of(std::span<const BatchCall> calls);
  // What all_reduces that run together are. Throws Exception(kInvalid) where they overlap.
  std::shared_ptr<const TensorList> list_of(std::span<const BatchCall> run) const;
  // A call whose output is written when it has succeeded: it runs in this memory, and its input stays until then. Not
  // submitted yet.
  OperationRef<CollectiveOperation> recoverable(const Call& call);
  // The communicator is over, and no operation runs in this memory any more: gives it back. What is allocated on its
  // communicator may be shared with the epochs to come.
  void release();
  // Throws Exception(kInvalid) for options that calls of batches and lists do not have.
  void refuse_options(const CallOptions& options) const;

 private:
  void add_run(std::span<const BatchCall> run, std::vector<OperationRef<CollectiveOperation>>& operations);
  OperationRef<CollectiveOperation> packed(CheckedCall call, std::span<const BatchCall> run, const Bucket& bucket);
  void check_disjoint(std::span<const BatchCall> run) const;
  std::byte* memory(size_t bytes);

  CommunicatorState& group_;

  // What fused operations of this communicator run on, one after the other: registered memory, so that ranks that share
  // memory fold it where it lies. The last and largest is used; earlier ones may still have operations in the queue.
  struct FusionBuffer {
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  std::mutex memory_mutex_;
  std::vector<FusionBuffer> memories_;
};

}  // namespace rondo
