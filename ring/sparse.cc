#include "rondo/sparse.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "kernels/combine.h"

namespace rondo {
namespace {

constexpr size_t kCoordinateBytes = 8;  // a uint32 index and a float32

uint32_t magnitude_bits(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffffu; }
constexpr uint32_t kInfinityBits = 0x7f800000u;

// What ranks tell each other before the elements.
struct Header {
  uint64_t selected = 0;
  uint64_t bytes = 0;
  uint64_t not_finite = 0;  // index plus 1 of the first such element
  uint64_t count = 0;       // elements of the call
};
constexpr uint64_t kHeaderWords = sizeof(Header) / sizeof(uint64_t);

[[noreturn]] void refuse(const Communicator& group, const std::string& why) {
  throw Exception(ErrorCode::kInvalid, fmt::format("sparse_all_reduce on rank {}: {}", group.rank(), why));
}

bool overlap(const float* a, const float* b, uint64_t count) {
  const auto first = reinterpret_cast<uintptr_t>(a), second = reinterpret_cast<uintptr_t>(b);
  const uint64_t bytes = count * sizeof(float);
  return first < second + bytes && second < first + bytes;
}

void check(const Communicator& group, const float* input, const float* output, uint64_t count,
           const SparseOptions& options) {
  if (count > UINT32_MAX) refuse(group, fmt::format("{} elements; there may be 2^32 - 1", count));
  if (count > 0 && (input == nullptr || output == nullptr)) refuse(group, "a buffer is null");
  const double spars = options.spars;
  if (options.select == Select::kTopK && !(spars > 0 && spars <= 1)) {
    refuse(group, fmt::format("spars is {}; top-k needs a fraction above 0, at most 1 (0 would send nothing)", spars));
  }
  if (options.select == Select::kThreshold && !(spars >= 0 && std::isfinite(spars))) {
    refuse(group, fmt::format("spars is {}; a threshold is a number from 0 on", spars));
  }
  if (count == 0) return;
  if (input != output && overlap(input, output, count)) refuse(group, "input and output overlap, and are not equal");
  if (options.residual == nullptr) return;
  if (overlap(options.residual, input, count) || overlap(options.residual, output, count)) {
    refuse(group, "the residual overlaps another buffer");
  }
}

// What stays in a first-level cache beside its sources.
constexpr uint64_t kPiece = 4096;

// Elements of a sample, from which the magnitude of the kth largest is estimated.
constexpr uint64_t kSample = 1 << 15;

// A tensor's elements that may be sent.
struct Candidates {
  std::unique_ptr<uint32_t[]> indices;  // ascending
  uint64_t count = 0;
  uint64_t not_finite = 0;  // index plus 1 of the first such element of all
};

// A magnitude, as bits, that somewhat more than k elements of u probably reach; 0: all do.
uint32_t probable_cut(const float* input, const float* residual, uint64_t count, uint64_t k) {
  if (count <= 2 * kSample) return 0;
  const uint64_t stride = count / kSample;
  std::vector<uint32_t> sample(kSample);
  for (uint64_t j = 0; j < kSample; ++j) {
    const uint64_t i = j * stride;
    sample[j] = magnitude_bits(residual == nullptr ? input[i] : input[i] + residual[i]);
  }
  // Five standard deviations more than expected.
  const double expected = static_cast<double>(k) / static_cast<double>(count) * kSample;
  const auto place = static_cast<uint64_t>(expected + 5 * std::sqrt(expected) + 8);
  if (place >= kSample) return 0;
  const auto at = sample.begin() + static_cast<ptrdiff_t>(place);
  std::nth_element(sample.begin(), at, sample.end(), std::greater<>());
  return *at;
}

// One pass: u into `sum`, and its elements of magnitude `least` and above. In place: input == sum, once more over u.
Candidates collect(const float* input, const float* residual, float* sum, uint64_t count, uint32_t least) {
  Candidates found;
  found.indices = std::make_unique_for_overwrite<uint32_t[]>(count + 1);  // only what is written becomes memory
  uint32_t largest = 0;
  for (uint64_t at = 0; at < count; at += kPiece) {
    const uint64_t end = std::min(count, at + kPiece);
    if (residual != nullptr) {
      const void* sources[] = {input + at, residual + at};
      void* targets[] = {sum + at};
      CombineMove move;
      move.sources = sources;
      move.targets = targets;
      move.source_count = 2;
      move.target_count = 1;
      combine({DType::kFloat32, Op::kSum}, move, end - at);
    } else if (input != sum) {
      std::memcpy(sum + at, input + at, (end - at) * sizeof(float));
    }
    for (uint64_t i = at; i < end; ++i) {
      const uint32_t magnitude = magnitude_bits(sum[i]);
      largest = std::max(largest, magnitude);
      found.indices[found.count] = static_cast<uint32_t>(i);
      found.count += magnitude >= least;
    }
  }
  if (largest < kInfinityBits) return found;
  uint64_t first = 0;
  while (magnitude_bits(sum[first]) < kInfinityBits) ++first;
  found.not_finite = first + 1;
  return found;
}

// Leaves the k largest; of equal ones the lowest indices.
void cut_to(Candidates& found, const float* u, uint64_t k) {
  if (found.count == k) return;
  std::vector<uint32_t> magnitudes(found.count);
  for (uint64_t c = 0; c < found.count; ++c) magnitudes[c] = magnitude_bits(u[found.indices[c]]);
  const auto kth = magnitudes.begin() + static_cast<ptrdiff_t>(k - 1);
  std::nth_element(magnitudes.begin(), kth, magnitudes.end(), std::greater<>());
  const uint32_t least = *kth;
  const auto larger = std::count_if(magnitudes.begin(), kth, [&](uint32_t m) { return m > least; });
  uint64_t equal = k - static_cast<uint64_t>(larger);  // of the least that go
  uint64_t kept = 0;
  for (uint64_t c = 0; c < found.count; ++c) {
    const uint32_t magnitude = magnitude_bits(u[found.indices[c]]);
    if (magnitude < least || (magnitude == least && equal == 0)) continue;
    equal -= magnitude == least;
    found.indices[kept++] = found.indices[c];
  }
  found.count = kept;
}

// The least float32 that is not below a threshold, as bits.
uint32_t threshold_bits(double spars) {
  float least = static_cast<float>(spars);
  if (static_cast<double>(least) < spars) least = std::nextafter(least, HUGE_VALF);
  return magnitude_bits(least);
}

// u into `u`, and what is sent of it; nothing where an element is not finite.
Candidates select(const float* input, float* u, uint64_t count, const SparseOptions& options) {
  const bool top = options.select == Select::kTopK;
  const double wanted = std::ceil(options.spars * static_cast<double>(count));
  const uint64_t k = top ? std::clamp<uint64_t>(static_cast<uint64_t>(wanted), 1, count) : 0;
  const uint32_t least = top ? probable_cut(input, options.residual, count, k) : threshold_bits(options.spars);
  Candidates found = collect(input, options.residual, u, count, least);
  if (found.not_finite != 0) {
    found.count = 0;
  } else if (top) {
    if (found.count < k) found = collect(u, nullptr, u, count, 0);  // the sample was no good one
    cut_to(found, u, k);
  }
  return found;
}

// --- A selection as bytes: all indices and all values; or, where that is shorter, a bitmap and all values. Which of
// the two follows from the lengths.

uint64_t bitmap_bytes(uint64_t count) { return (count + 31) / 32 * 4; }
uint64_t coded_bytes(uint64_t selected, uint64_t count) {
  return std::min(selected * kCoordinateBytes, bitmap_bytes(count) + selected * sizeof(float));
}
bool as_bitmap(uint64_t selected, uint64_t count) { return coded_bytes(selected, count) < selected * kCoordinateBytes; }

std::vector<uint32_t> encode(std::span<const uint32_t> indices, const float* u, uint64_t count) {
  std::vector<uint32_t> words(coded_bytes(indices.size(), count) / 4);
  uint32_t* value = words.data() + indices.size();
  if (as_bitmap(indices.size(), count)) {
    for (const uint32_t i : indices) words[i / 32] |= uint32_t{1} << (i % 32);
    value = words.data() + bitmap_bytes(count) / 4;
  } else {
    std::copy(indices.begin(), indices.end(), words.begin());
  }
  for (const uint32_t i : indices) *value++ = std::bit_cast<uint32_t>(u[i]);
  return words;
}

void add(const uint32_t* words, uint64_t selected, uint64_t count, float* output) {
  if (!as_bitmap(selected, count)) {
    const uint32_t* values = words + selected;
    for (uint64_t k = 0; k < selected; ++k) {
      if (words[k] < count) output[words[k]] += std::bit_cast<float>(values[k]);
    }
    return;
  }
  const uint32_t* value = words + bitmap_bytes(count) / 4;
  const uint32_t* const end = value + selected;
  for (uint64_t w = 0; w < bitmap_bytes(count) / 4; ++w) {
    for (uint32_t bits = words[w]; bits != 0 && value != end; bits &= bits - 1) {
      const uint64_t i = w * 32 + static_cast<uint64_t>(std::countr_zero(bits));
      if (i < count) output[i] += std::bit_cast<float>(*value++);
    }
  }
}

std::vector<Header> exchange(Communicator& group, const Header& own, const CallOptions& options) {
  std::vector<Header> all(static_cast<size_t>(group.size()));
  group.all_gather(&own, all.data(), kHeaderWords, DType::kUint64, options);
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].count != all[0].count) {
      throw Exception(Error{ErrorCode::kMismatch,
                            fmt::format("sparse_all_reduce on rank {}: rank {} has {} elements, and rank 0 has {}",
                                        group.rank(), r, all[r].count, all[0].count),
                            {static_cast<int>(r)}});
    }
  }
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].not_finite == 0) continue;
    throw Exception(
        Error{ErrorCode::kNotFinite,
              fmt::format("sparse_all_reduce on rank {}: element {} of the input and residual of rank {} is "
                          "NaN or infinite; nothing was sent, and the residuals are as before",
                          group.rank(), all[r].not_finite - 1, r),
              {static_cast<int>(r)}});
  }
  return all;
}

// u moves from `output` to the residual, but for what is sent. The output is zero then.
void keep_rest(float* output, std::span<const uint32_t> sent, float* residual, uint64_t count) {
  for (uint64_t at = 0; at < count; at += kPiece) {
    const size_t bytes = std::min(kPiece, count - at) * sizeof(float);
    if (residual != nullptr) std::memcpy(residual + at, output + at, bytes);
    std::memset(output + at, 0, bytes);
  }
  if (residual == nullptr) return;
  for (const uint32_t i : sent) residual[i] = 0;
}

// output: zero before.
void reduce_coded(Communicator& group, const std::vector<uint32_t>& own, const std::vector<Header>& all, float* output,
                  uint64_t count, const CallOptions& options) {
  std::vector<uint64_t> words;
  uint64_t sum = 0;
  for (const Header& header : all) {
    words.push_back(header.bytes / 4);
    sum += words.back();
  }
  std::vector<uint32_t> gathered(sum);
  group.all_gather_v(own.data(), gathered.data(), words, {}, DType::kUint32, options);
  const uint32_t* from = gathered.data();
  for (const Header& header : all) {
    add(from, header.selected, count, output);
    from += header.bytes / 4;
  }
}

}  // namespace

SparseReport sparse_all_reduce(Communicator& group, const float* input, float* output, uint64_t count,
                               const SparseOptions& options) {
  check(group, input, output, count, options);
  if (count == 0) return {};
  CallOptions call;
  call.timeout = options.timeout;
  const Candidates found = select(input, output, count, options);
  const std::span<const uint32_t> sent(found.indices.get(), found.count);
  const Header own{sent.size(), coded_bytes(sent.size(), count), found.not_finite, count};
  const std::vector<Header> all = exchange(group, own, call);
  const std::vector<uint32_t> words = encode(sent, output, count);
  keep_rest(output, sent, options.residual, count);

  SparseReport report;
  report.selected = sent.size();
  uint64_t coded = 0;
  for (const Header& header : all) {
    report.total += header.selected;
    coded += header.bytes;
  }
  // A rank receives the others' selections, or twice its share of all elements.
  report.dense = group.size() > 1 && coded >= 2 * count * sizeof(float);
  report.bytes_sent = report.dense ? count * sizeof(float) : own.bytes;
  if (report.dense) {
    add(words.data(), sent.size(), count, output);
    group.all_reduce(output, output, count, DType::kFloat32, Op::kSum, call);
  } else {
    reduce_coded(group, words, all, output, count, call);
  }
  return report;
}

}  // namespace rondo
