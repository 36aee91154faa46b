#include "rondo/dist_opt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

namespace rondo {
namespace {

[[noreturn]] void refuse(const Communicator& group, const std::string& why) {
  throw Exception(ErrorCode::kInvalid, fmt::format("DistOpt on rank {}: {}", group.rank(), why));
}

void check(const Communicator& group, const std::vector<NamedGradient>& gradients, const DistOptOptions& options) {
  if (gradients.empty()) refuse(group, "there are no gradients");
  std::set<std::string> names;
  for (const NamedGradient& g : gradients) {
    if (!names.insert(g.name).second) refuse(group, fmt::format("there are two gradients \"{}\"", g.name));
    if (g.count > 0 && (g.parameter == nullptr || g.gradient == nullptr)) {
      refuse(group, fmt::format("a pointer of \"{}\" is null", g.name));
    }
  }
  const double spars = options.spars;
  if (options.exchange == Exchange::kSparseTopK && !(spars > 0 && spars <= 1)) {
    refuse(group, fmt::format("spars is {}; top-k needs a fraction above 0, at most 1 (0 would send nothing)", spars));
  }
  if (options.exchange == Exchange::kSparseThreshold && !(spars >= 0 && std::isfinite(spars))) {
    refuse(group, fmt::format("spars is {}; a threshold is a number from 0 on", spars));
  }
  if (!(options.clip >= 0)) refuse(group, fmt::format("clip is {}; it is positive, or 0 for none", options.clip));
  if (options.bucket_bytes == 0 || options.partition_bytes == 0 || options.every == 0) {
    refuse(group, "bucket_bytes, partition_bytes and every are at least 1");
  }
}

bool after_update(Exchange exchange) { return exchange == Exchange::kPartialUpdate || exchange == Exchange::kLocalSgd; }

bool sparse(Exchange exchange) { return exchange == Exchange::kSparseTopK || exchange == Exchange::kSparseThreshold; }

WireFormat format_of(Exchange exchange) {
  switch (exchange) {
    case Exchange::kFloat16:
      return WireFormat::kFloat16;
    case Exchange::kBfloat16:
      return WireFormat::kBfloat16;
    case Exchange::kInt8:
      return WireFormat::kInt8;
    default:
      return WireFormat::kNone;
  }
}

// Runs of the list of at most `bytes` each, or one tensor: (first, count).
std::vector<std::pair<size_t, size_t>> runs_of(const std::vector<NamedGradient>& gradients, uint64_t bytes) {
  std::vector<std::pair<size_t, size_t>> runs;
  uint64_t room = 0;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const uint64_t needed = gradients[i].count * sizeof(float);
    if (runs.empty() || needed > room) {
      runs.emplace_back(i, 0);
      room = bytes;
    }
    ++runs.back().second;
    room -= std::min(room, needed);
  }
  return runs;
}

}  // namespace

DistOpt::DistOpt(Communicator& group, std::vector<NamedGradient> gradients, const DistOptOptions& options)
    : group_(group), gradients_(std::move(gradients)), options_(options) {
  check(group, gradients_, options);
  for (const auto& [first, count] : runs_of(gradients_, options.bucket_bytes)) {
    Bucket& bucket = buckets_.emplace_back();
    bucket.first = first;
    bucket.count = count;
    uint64_t elements = 0;
    for (size_t i = first; i < first + count; ++i) elements += gradients_[i].count;
    bucket.values.resize(elements);
    bucket.residual.resize(elements);
  }
  for (const auto& [first, count] : runs_of(gradients_, options.partition_bytes)) {
    Bucket& partition = partitions_.emplace_back();
    partition.first = first;
    partition.count = count;
  }
  for (const NamedGradient& g : gradients_) group_.broadcast(g.parameter, g.count, DType::kFloat32, 0);
}

void DistOpt::clip_gradients() {
  if (options_.clip == 0) return;
  for (const NamedGradient& g : gradients_) {
    for (uint64_t i = 0; i < g.count; ++i) g.gradient[i] = std::clamp(g.gradient[i], -options_.clip, options_.clip);
  }
}

void DistOpt::exchange(Bucket& bucket) {
  float* values = bucket.values.data();
  const uint64_t count = bucket.values.size();
  if (sparse(options_.exchange)) {
    SparseOptions options;
    options.select = options_.exchange == Exchange::kSparseTopK ? Select::kTopK : Select::kThreshold;
    options.spars = options_.spars;
    options.residual = options_.residual ? bucket.residual.data() : nullptr;
    sparse_all_reduce(group_, values, values, count, options);
    const float share = 1.0f / static_cast<float>(group_.size());
    for (float& value : bucket.values) value *= share;
    return;
  }
  CallOptions options;
  options.wire.format = format_of(options_.exchange);
  const bool keeps = options_.exchange == Exchange::kInt8 && options_.residual;
  options.wire.residual = keeps ? bucket.residual.data() : nullptr;
  group_.all_reduce(values, values, count, DType::kFloat32, Op::kAverage, options);
}

// Parameters, in place.
void DistOpt::average(size_t first, size_t count) {
  std::vector<TensorRef> tensors;
  for (size_t i = first; i < first + count; ++i) {
    tensors.push_back({gradients_[i].parameter, gradients_[i].parameter, gradients_[i].count, DType::kFloat32});
  }
  group_.all_reduce_many(tensors, Op::kAverage);
}

void DistOpt::step(const Update& update) {
  clip_gradients();
  if (after_update(options_.exchange)) {
    for (const NamedGradient& g : gradients_) update(g);
    const Bucket& partition = partitions_[steps_ % partitions_.size()];
    ++steps_;
    if (options_.exchange == Exchange::kPartialUpdate) return average(partition.first, partition.count);
    if (steps_ % options_.every == 0) average(0, gradients_.size());
    return;
  }
  // All buckets, though one is not finite: the ranks make the same calls.
  std::optional<Error> failure;
  for (Bucket& bucket : buckets_) {
    float* to = bucket.values.data();
    for (size_t i = bucket.first; i < bucket.first + bucket.count; ++i) {
      const NamedGradient& g = gradients_[i];
      to = std::copy_n(g.gradient, g.count, to);
    }
    try {
      exchange(bucket);
    } catch (const Exception& e) {
      if (e.code() != ErrorCode::kNotFinite) throw;
      if (!failure) failure = e.error();
    }
  }
  if (failure) throw Exception(*failure);
  for (const Bucket& bucket : buckets_) {
    const float* from = bucket.values.data();
    for (size_t i = bucket.first; i < bucket.first + bucket.count; ++i) {
      std::copy_n(from, gradients_[i].count, gradients_[i].gradient);
      from += gradients_[i].count;
    }
  }
  for (const NamedGradient& g : gradients_) update(g);
  ++steps_;
}

std::span<float> DistOpt::residual(const std::string& name) {
  for (Bucket& bucket : buckets_) {
    float* at = bucket.residual.data();
    for (size_t i = bucket.first; i < bucket.first + bucket.count; ++i) {
      if (gradients_[i].name == name) return {at, gradients_[i].count};
      at += gradients_[i].count;
    }
  }
  refuse(group_, fmt::format("there is no gradient \"{}\"", name));
}

}  // namespace rondo
