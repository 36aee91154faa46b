#include "ring/engine/call/fusion.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "ring/base/hash.h"

namespace rondo {
namespace {

// The longest description of a list: an error of 4096 bytes shows two of them.
constexpr size_t kMaxDescriptionBytes = 1600;

// Tensors of this part of a bucket are operations of their own: from 256 KiB on, with the usual bucket, a copy costs
// more than a call (docs/tuning.md, "Buckets").
constexpr uint64_t kBucketParts = 4;

using Kind = std::tuple<DType, Op, Algorithm>;

// What tensors must have in common to share one operation.
Kind kind_of(const TensorShape& tensor) { return {tensor.dtype, tensor.op, tensor.asked}; }

// The bucket that tensors of one kind are being put into.
struct OpenBucket {
  Kind kind;
  Bucket bucket;
};

}  // namespace

// One pass over the list. Each kind of tensors has one open bucket, which is closed when the next tensor does
// not fit. Equal lists must give equal buckets on all ranks, so nothing here may depend on addresses or times.
std::vector<Bucket> plan_buckets(std::span<const TensorShape> tensors, uint64_t bucket_bytes) {
  std::vector<Bucket> closed;
  std::vector<OpenBucket> open;  // of the few kinds that there are, in the order of their first tensor
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    const TensorShape& tensor = tensors[i];
    if (tensor.count == 0) continue;
    if (!tensor.fusable || tensor.bytes() >= bucket_bytes / kBucketParts) {
      closed.push_back({{i}, tensor.count});
      continue;
    }
    auto found = std::find_if(open.begin(), open.end(), [&](const auto& o) { return o.kind == kind_of(tensor); });
    if (found == open.end()) found = open.insert(open.end(), {kind_of(tensor), {}});
    Bucket& bucket = found->bucket;
    if (bucket.count * dtype_bytes(tensor.dtype) + tensor.bytes() > bucket_bytes) {
      closed.push_back(std::exchange(bucket, {}));
    }
    bucket.tensors.push_back(i);
    bucket.count += tensor.count;
  }
  for (OpenBucket& last : open) closed.push_back(std::move(last.bucket));
  // A list of empty tensors still is an operation: the ranks compare their lists by it.
  if (closed.empty() && !tensors.empty()) closed.push_back({{0}, 0});
  return closed;
}

// An op that is each rank's own is left out of the hash: it may differ.
TensorList::TensorList(std::vector<TensorShape> shapes) : tensors(std::move(shapes)) {
  Hash64 sum;
  for (const TensorShape& tensor : tensors) {
    const Op op = tensor.any_op ? Op{} : tensor.op;
    sum.add(tensor.count)
        .add(static_cast<uint64_t>(tensor.dtype) | (static_cast<uint64_t>(op) << 8) |
             (static_cast<uint64_t>(tensor.asked) << 16) | (static_cast<uint64_t>(tensor.fusable) << 24) |
             (static_cast<uint64_t>(tensor.any_op) << 25));
  }
  // 0 stands for a call without a list (CallFields::shared_counts).
  hash = std::max<uint64_t>(1, sum.add(tensors.size()).value());
}

std::string TensorList::describe() const {
  std::string text = "[";
  const TensorShape* before = nullptr;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorShape& tensor = tensors[i];
    if (text.size() > kMaxDescriptionBytes) return text + fmt::format(", ... {} more]", tensors.size() - i);
    if (before != nullptr) text += ", ";
    if (before == nullptr || tensor.dtype != before->dtype) text += fmt::format("{} ", dtype_name(tensor.dtype));
    if (before == nullptr || tensor.op != before->op || tensor.any_op != before->any_op) {
      text += fmt::format("{}{} ", tensor.any_op ? "own op " : "", op_name(tensor.op));
    }
    text += fmt::format("{}", tensor.count);
    before = &tensor;
  }
  return text + "]";
}

std::optional<std::pair<size_t, size_t>> find_overlap(std::span<const TensorMemory> tensors) {
  // A sweep over the memory in ascending order, O(n log n): lists may have thousands of tensors.
  struct Interval {
    uintptr_t begin, end;
    size_t tensor;
    bool written;
  };
  std::vector<Interval> intervals;
  intervals.reserve(tensors.size() * 2);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorMemory& tensor = tensors[i];
    if (tensor.bytes == 0) continue;
    const auto output = reinterpret_cast<uintptr_t>(tensor.output);
    const auto input = reinterpret_cast<uintptr_t>(tensor.input);
    intervals.push_back({output, output + tensor.bytes, i, true});
    if (input != output) intervals.push_back({input, input + tensor.bytes, i, false});
  }
  std::sort(intervals.begin(), intervals.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  // A tensor's own two intervals are disjoint, so where one of them reaches furthest, no other reaches the second.
  const Interval* furthest = nullptr;
  const Interval* furthest_written = nullptr;
  for (const Interval& interval : intervals) {
    const Interval* other = interval.written ? furthest : furthest_written;
    if (other != nullptr && interval.begin < other->end) return std::minmax(interval.tensor, other->tensor);
    if (furthest == nullptr || interval.end > furthest->end) furthest = &interval;
    if (interval.written && (furthest_written == nullptr || interval.end > furthest_written->end)) {
      furthest_written = &interval;
    }
  }
  return std::nullopt;
}

}  // namespace rondo
