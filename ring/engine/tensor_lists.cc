#include "ring/engine/tensor_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "ring/engine/communicator_state.h"

namespace rondo {
namespace {

// The first memory of fused operations: less is not worth a system call.
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

// Factors are each rank's own, so they cannot say which calls run together.
BatchPart TensorLists::item_of(const Call& call) const {
  BatchPart item{check_call(call, group_.rank(), group_.size()), call.op != Op::kPremulSum && call.op != Op::kUser};
  item.stream = call.options.stream;
  return item;
}

void TensorLists::append(std::vector<BatchPart>& items, std::span<const TensorRef> tensors, Op op,
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

std::vector<BatchPart> TensorLists::recoverable(const Call& call) {
  std::vector<BatchPart> parts;
  BatchPart& part = parts.emplace_back(BatchPart{check_call(call, group_.rank(), group_.size())});
  const size_t bytes = part.call.count * part.call.element_bytes();
  part.packing = Packing{{{part.call.input, part.call.output, bytes}}, memory(bytes)};
  part.call.input = part.call.output = part.packing->memory;
  return parts;
}

std::vector<BatchPart> TensorLists::parts_of(std::span<BatchPart> items) {
  std::vector<BatchPart> parts;
  for (size_t i = 0; i < items.size();) {
    size_t end = i;
    while (end < items.size() && items[end].call.collective == Collective::kAllReduce &&
           items[end].call.op != Op::kUser) {
      ++end;
    }
    if (end - i > 1) {
      add_run(items.subspan(i, end - i), parts);
      i = end;
    } else {
      // Alone it is the same call as outside, so that ranks need not group it alike.
      parts.push_back(std::move(items[i]));
      ++i;
    }
  }
  return parts;
}

std::shared_ptr<const TensorList> TensorLists::list_of(std::span<const BatchPart> run) const {
  check_disjoint(run);
  std::vector<TensorShape> shapes;
  shapes.reserve(run.size());
  for (const BatchPart& item : run) {
    shapes.push_back({item.call.count, item.call.dtype, item.call.op, item.call.asked, item.fusable});
  }
  return std::make_shared<const TensorList>(std::move(shapes));
}

void TensorLists::add_run(std::span<BatchPart> run, std::vector<BatchPart>& parts) {
  const auto list = list_of(run);
  // A rank by itself has no latency to save.
  const uint64_t bucket_bytes = group_.size() > 1 ? group_.context().config.bucket_bytes : 0;
  const std::vector<Bucket> buckets = plan_buckets(list->tensors, bucket_bytes);
  for (size_t i = 0; i < buckets.size(); ++i) {
    BatchPart part = part_of(run, buckets[i]);
    part.call.list = list;
    part.call.shared_counts = list->hash;
    part.call.part = static_cast<uint32_t>(i + 1);
    part.call.parts = static_cast<uint32_t>(buckets.size());
    parts.push_back(std::move(part));
  }
}

BatchPart TensorLists::part_of(std::span<BatchPart> run, const Bucket& bucket) {
  BatchPart part{run[bucket.tensors.front()].call};
  if (bucket.tensors.size() == 1) return part;
  const uint64_t element = dtype_bytes(part.call.dtype);
  Packing& packing = part.packing.emplace();
  packing.memory = memory(bucket.count * element);
  packing.pieces.reserve(bucket.tensors.size());
  const auto given = [](std::chrono::milliseconds timeout) {
    return timeout.count() > 0 ? timeout : std::chrono::milliseconds::max();
  };
  auto timeout = std::chrono::milliseconds::max();
  for (const uint32_t index : bucket.tensors) {
    const CheckedCall& call = run[index].call;
    packing.pieces.push_back({call.input, call.output, call.count * element});
    timeout = std::min(timeout, given(call.timeout));
  }
  part.call.timeout = timeout == std::chrono::milliseconds::max() ? std::chrono::milliseconds(0) : timeout;
  part.call.count = bucket.count;
  part.call.input = part.call.output = packing.memory;
  return part;
}

void TensorLists::check_disjoint(std::span<const BatchPart> run) const {
  std::vector<TensorMemory> memories;
  memories.reserve(run.size());
  for (const BatchPart& item : run) {
    const CheckedCall& call = item.call;
    memories.push_back({call.input, call.output, call.count * dtype_bytes(call.dtype)});
  }
  const auto overlap = find_overlap(memories);
  if (!overlap) return;
  throw Exception(ErrorCode::kInvalid,
                  fmt::format("all_reduce on rank {}: tensors {} and {} of {} overlap, and one of them is an output; "
                              "the tensors of a list have no order",
                              group_.rank(), overlap->first, overlap->second, run.size()));
}

std::byte* TensorLists::memory(size_t bytes) {
  std::lock_guard lock(memory_mutex_);
  if (memories_.empty() || memories_.back().bytes < bytes) {
    const size_t made = std::bit_ceil(std::max(bytes, kLeastMemoryBytes));
    memories_.push_back({static_cast<std::byte*>(group_.allocations().allocate(made)), made});
  }
  return memories_.back().data;
}

}  // namespace rondo
