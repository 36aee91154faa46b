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

// A checked call of a batch or list, with its memory.
struct BatchCall {
  CheckedCall call;
  CallBuffers buffers;
  // It may share an operation with its neighbors; the same on every rank.
  bool fusable = true;
  std::optional<void*> stream = {};  // CallOptions::stream
};

// Whether the call has arguments that are each rank's own: factors, and ops where ranks may differ. Such a call
// cannot be fused, since ranks could group their calls differently.
inline bool differs_by_rank(Op op, const CallOptions& options) { return op == Op::kPremulSum || options.any_op; }

// The all_reduce of one tensor of a list.
Call all_reduce_of(const TensorRef& tensor, Op op, const CallOptions& options);

// Turns calls that are submitted together into operations: consecutive all_reduces into as few as fusion.h
// says. It owns the memory on which fused and recoverable operations run. Any thread.
class TensorLists {
 public:
  explicit TensorLists(CommunicatorState& group) : group_(group) {}

  // Checks the call, but not its memory, and keeps no span of it.
  BatchCall item_of(const Call& call) const;
  // Checks an all_reduce of each tensor, and appends them. Throws Exception that names the tensor.
  void append(std::vector<BatchCall>& items, std::span<const TensorRef> tensors, Op op, const CallOptions& options,
              bool fusable) const;
  // The operations of these calls, not submitted yet. Throws Exception(kInvalid) where all_reduces that run
  // together overlap: they have no order.
  std::vector<OperationRef<CollectiveOperation>> operations_of(std::span<const BatchCall> calls);
  // The description of all_reduces that run together, which ranks compare. Throws Exception(kInvalid) where
  // they overlap.
  std::shared_ptr<const TensorList> list_of(std::span<const BatchCall> run) const;
  // An operation, not submitted yet, whose output is written only when it has succeeded. It runs in this
  // object's memory, so the input stays until then.
  OperationRef<CollectiveOperation> recoverable(const Call& call);
  // Gives the memory back; by destroy(), when no operation runs there any more. It was allocated with the
  // communicator's allocate(), which the epochs to come share, so nobody else would free it.
  void release();
  // Throws Exception(kInvalid) for options that calls of batches and lists do not have.
  void refuse_options(const CallOptions& options) const;

 private:
  // The operations of two all_reduces or more that follow one another: one for each bucket.
  void add_run(std::span<const BatchCall> run, std::vector<OperationRef<CollectiveOperation>>& operations);
  // A bucket of several tensors as one operation. It has the shortest time limit that one of them was given.
  OperationRef<CollectiveOperation> packed(CheckedCall call, std::span<const BatchCall> run, const Bucket& bucket);
  void check_disjoint(std::span<const BatchCall> run) const;
  // Returns at least that many bytes. Earlier operations may use them, too: operations run one after the other.
  std::byte* memory(size_t bytes);

  CommunicatorState& group_;

  // Memory on which fused operations run, one after the other. It is registered, so ranks that share memory
  // fold it where it lies. The last buffer is the largest, and the one in use; operations in the queue may
  // still use earlier ones.
  struct FusionBuffer {
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  std::mutex memory_mutex_;
  std::vector<FusionBuffer> memories_;
};

}  // namespace rondo
