#include "ring/engine/tensor_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "ring/engine/communicator_state.h"

namespace rondo {
namespace {

// The smallest memory for fused operations: allocating less is not worth a system call.
constexpr size_t kLeastMemoryBytes = 64 * 1024;

}  // namespace

Call all_reduce_of(const TensorRef& tensor, Op op, const CallOptions& options) {
  Call call;
  call.input = tensor.input;
  call.output = tensor.output;
  call.count = tensor.count;
  call.dtype = tensor.dtype;
  call.op = op;
  call.options = options;
  return call;
}

void TensorLists::refuse_options(const CallOptions& options) const {
  // Operations before the one that fails have their results.
  if (options.recoverable) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("rank {}: recoverable is an option of an all_reduce by itself, not "
                                "of a list or of a call in a batch",
                                group_.rank()));
  }
  if (options.wire.format == WireFormat::kNone) return;
  throw Exception(
      ErrorCode::kInvalid,
      fmt::format("rank {}: the calls of a batch and lists have no wire format ({} was asked for); make the "
                  "call by itself",
                  group_.rank(), wire_format_name(options.wire.format)));
}

BatchCall TensorLists::item_of(const Call& call) const {
  const bool fusable = call.op != Op::kUser && !differs_by_rank(call.op, call.options);
  return {check_call(call, group_.rank(), group_.size()), buffers_of(call), fusable, call.options.stream};
}

void TensorLists::append(std::vector<BatchCall>& items, std::span<const TensorRef> tensors, Op op,
                         const CallOptions& options, bool fusable) const {
  refuse_options(options);
  if (op == Op::kUser) {
    throw Exception(
        ErrorCode::kInvalid,
        fmt::format("rank {}: a list has no operation of the program's; make a call for each tensor", group_.rank()));
  }
  items.reserve(items.size() + tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Call call = all_reduce_of(tensors[i], op, options);
    try {
      items.push_back(item_of(call));
      items.back().fusable = fusable;
      if (!options.stream) group_.check_on_host(call);
    } catch (const Exception& e) {
      throw Exception(e.code(), fmt::format("tensor {} of {}: {}", i, tensors.size(), e.what()));
    }
  }
}

// A packing of one tensor: the input is copied into this memory, and the result back only after a success.
OperationRef<CollectiveOperation> TensorLists::recoverable(const Call& call) {
  const CheckedCall checked = check_call(call, group_.rank(), group_.size());
  CallBuffers buffers = buffers_of(call);
  const size_t bytes = checked.count * checked.element_bytes();
  Packing packing{{{buffers.input, buffers.output, bytes}}, memory(bytes)};
  buffers.input = buffers.output = packing.memory;
  auto operation = group_.calls().make(checked, buffers);
  operation->packing = std::move(packing);
  return operation;
}

std::vector<OperationRef<CollectiveOperation>> TensorLists::operations_of(std::span<const BatchCall> calls) {
  std::vector<OperationRef<CollectiveOperation>> operations;
  for (size_t i = 0; i < calls.size();) {
    size_t end = i;
    while (end < calls.size() && calls[end].call.collective == Collective::kAllReduce &&
           calls[end].call.op != Op::kUser) {
      ++end;
    }
    if (end - i > 1) {
      add_run(calls.subspan(i, end - i), operations);
      i = end;
    } else {
      // Alone it is the same call as outside, so that ranks need not group it alike.
      operations.push_back(group_.calls().make(calls[i].call, calls[i].buffers));
      ++i;
    }
  }
  return operations;
}

std::shared_ptr<const TensorList> TensorLists::list_of(std::span<const BatchCall> run) const {
  check_disjoint(run);
  std::vector<TensorShape> shapes;
  shapes.reserve(run.size());
  for (const BatchCall& item : run) {
    const CheckedCall& call = item.call;
    shapes.push_back({call.count, call.dtype, call.op, call.asked, item.fusable, call.any_op});
  }
  return std::make_shared<const TensorList>(std::move(shapes));
}

void TensorLists::add_run(std::span<const BatchCall> run, std::vector<OperationRef<CollectiveOperation>>& operations) {
  const auto list = list_of(run);
  // A rank by itself has no latency to save.
  const uint64_t bucket_bytes = group_.size() > 1 ? group_.context().config.bucket_bytes : 0;
  const std::vector<Bucket> buckets = plan_buckets(list->tensors, bucket_bytes);
  for (size_t i = 0; i < buckets.size(); ++i) {
    const BatchCall& first = run[buckets[i].tensors.front()];
    CheckedCall call = first.call;
    call.list = list;
    call.shared_counts = list->hash;
    call.part = static_cast<uint32_t>(i + 1);
    call.parts = static_cast<uint32_t>(buckets.size());
    const bool alone = buckets[i].tensors.size() == 1;
    operations.push_back(alone ? group_.calls().make(call, first.buffers) : packed(std::move(call), run, buckets[i]));
  }
}

// call: of the first tensor.
OperationRef<CollectiveOperation> TensorLists::packed(CheckedCall call, std::span<const BatchCall> run,
                                                      const Bucket& bucket) {
  const uint64_t element = dtype_bytes(call.dtype);
  Packing packing;
  packing.memory = memory(bucket.count * element);
  packing.pieces.reserve(bucket.tensors.size());
  const auto given = [](std::chrono::milliseconds timeout) {
    return timeout.count() > 0 ? timeout : std::chrono::milliseconds::max();
  };
  auto timeout = std::chrono::milliseconds::max();
  for (const uint32_t index : bucket.tensors) {
    const BatchCall& tensor = run[index];
    packing.pieces.push_back({tensor.buffers.input, tensor.buffers.output, tensor.call.count * element});
    timeout = std::min(timeout, given(tensor.call.timeout));
  }
  call.timeout = timeout == std::chrono::milliseconds::max() ? std::chrono::milliseconds(0) : timeout;
  call.count = bucket.count;
  auto operation = group_.calls().make(call, {packing.memory, packing.memory});
  operation->packing = std::move(packing);
  return operation;
}

void TensorLists::check_disjoint(std::span<const BatchCall> run) const {
  std::vector<TensorMemory> memories;
  memories.reserve(run.size());
  for (const BatchCall& item : run) {
    memories.push_back({item.buffers.input, item.buffers.output, item.call.count * dtype_bytes(item.call.dtype)});
  }
  const auto overlap = find_overlap(memories);
  if (!overlap) return;
  throw Exception(ErrorCode::kInvalid,
                  fmt::format("all_reduce on rank {}: tensors {} and {} of {} overlap, and one of them is an output; "
                              "the tensors of a list have no order",
                              group_.rank(), overlap->first, overlap->second, run.size()));
}

void TensorLists::release() {
  std::lock_guard lock(memory_mutex_);
  for (const FusionBuffer& buffer : std::exchange(memories_, {})) group_.allocations()->deallocate(buffer.data);
}

std::byte* TensorLists::memory(size_t bytes) {
  std::lock_guard lock(memory_mutex_);
  if (memories_.empty() || memories_.back().bytes < bytes) {
    const size_t made = std::bit_ceil(std::max(bytes, kLeastMemoryBytes));
    memories_.push_back({static_cast<std::byte*>(group_.allocations()->allocate(made)), made});
  }
  return memories_.back().data;
}

}  // namespace rondo
