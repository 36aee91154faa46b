#include "rondo/sparse.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

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

// u into `sum`. Returns the first element that is not finite; count if there is none.
uint64_t add_residual(const float* input, const float* residual, float* sum, uint64_t count) {
  uint32_t largest = 0;
  for (uint64_t i = 0; i < count; ++i) {
    sum[i] = residual == nullptr ? input[i] : input[i] + residual[i];
    largest = std::max(largest, magnitude_bits(sum[i]));
  }
  if (largest < kInfinityBits) return count;
  uint64_t first = 0;
  while (magnitude_bits(sum[first]) < kInfinityBits) ++first;
  return first;
}

// The least magnitude that is sent, as bits, and how many of exactly that magnitude are.
struct Cut {
  uint32_t magnitude = 0;
  uint64_t equal = UINT64_MAX;
};

// By a histogram of the upper bits, then exactly among the elements of one bin. Two passes over u.
Cut cut_of_top(const float* u, uint64_t count, uint64_t k) {
  constexpr int kShift = 20;  // sign, exponent and 3 bits of the fraction: 2048 bins, 16 KiB
  std::vector<uint64_t> bins(size_t{1} << (31 - kShift));
  for (uint64_t i = 0; i < count; ++i) ++bins[magnitude_bits(u[i]) >> kShift];
  size_t bin = bins.size() - 1;
  uint64_t above = 0;  // elements in higher bins
  while (above + bins[bin] < k) above += bins[bin--];
  std::vector<uint32_t> inside;
  inside.reserve(bins[bin]);
  for (uint64_t i = 0; i < count; ++i) {
    if (magnitude_bits(u[i]) >> kShift == bin) inside.push_back(magnitude_bits(u[i]));
  }
  const auto kth = inside.begin() + static_cast<ptrdiff_t>(k - above - 1);
  std::nth_element(inside.begin(), kth, inside.end(), std::greater<>());
  const uint32_t least = *kth;
  const auto larger = std::count_if(inside.begin(), kth, [&](uint32_t m) { return m > least; });
  return {least, k - above - static_cast<uint64_t>(larger)};
}

std::vector<uint32_t> select(const float* u, uint64_t count, const SparseOptions& options) {
  Cut cut;
  std::vector<uint32_t> indices;
  if (options.select == Select::kTopK) {
    const double wanted = std::ceil(options.spars * static_cast<double>(count));
    const uint64_t k = std::clamp<uint64_t>(static_cast<uint64_t>(wanted), 1, count);
    cut = cut_of_top(u, count, k);
    indices.reserve(k);
  } else {
    // The least float32 that is not below the threshold.
    float least = static_cast<float>(options.spars);
    if (static_cast<double>(least) < options.spars) least = std::nextafter(least, HUGE_VALF);
    cut.magnitude = magnitude_bits(least);
  }
  for (uint64_t i = 0; i < count; ++i) {
    const uint32_t magnitude = magnitude_bits(u[i]);
    if (magnitude < cut.magnitude) continue;
    if (magnitude == cut.magnitude && cut.equal-- == 0) {
      cut.equal = 0;
      continue;
    }
    indices.push_back(static_cast<uint32_t>(i));
  }
  return indices;
}

// --- A selection as bytes: all indices and all values; or, where that is shorter, a bitmap and all values. Which of
// the two follows from the lengths.

uint64_t bitmap_bytes(uint64_t count) { return (count + 31) / 32 * 4; }
uint64_t coded_bytes(uint64_t selected, uint64_t count) {
  return std::min(selected * kCoordinateBytes, bitmap_bytes(count) + selected * sizeof(float));
}
bool as_bitmap(uint64_t selected, uint64_t count) { return coded_bytes(selected, count) < selected * kCoordinateBytes; }

std::vector<uint32_t> encode(const std::vector<uint32_t>& indices, const float* u, uint64_t count) {
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

// What is sent leaves the residual.
void keep_rest(const float* u, const std::vector<uint32_t>& sent, float* residual, uint64_t count) {
  std::memcpy(residual, u, count * sizeof(float));
  for (const uint32_t i : sent) residual[i] = 0;
}

void reduce_dense(Communicator& group, const std::vector<uint32_t>& indices, float* output, uint64_t count,
                  const CallOptions& options) {
  std::vector<float> values;
  values.reserve(indices.size());
  for (const uint32_t i : indices) values.push_back(output[i]);
  std::fill_n(output, count, 0.0f);
  for (size_t k = 0; k < indices.size(); ++k) output[indices[k]] = values[k];
  group.all_reduce(output, output, count, DType::kFloat32, Op::kSum, options);
}

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
  std::fill_n(output, count, 0.0f);
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
  const uint64_t bad = add_residual(input, options.residual, output, count);
  const std::vector<uint32_t> indices = bad < count ? std::vector<uint32_t>() : select(output, count, options);
  Header own{indices.size(), coded_bytes(indices.size(), count), bad < count ? bad + 1 : 0, count};
  const std::vector<Header> all = exchange(group, own, call);
  if (options.residual != nullptr) keep_rest(output, indices, options.residual, count);

  SparseReport report;
  report.selected = indices.size();
  uint64_t coded = 0;
  for (const Header& header : all) {
    report.total += header.selected;
    coded += header.bytes;
  }
  // A rank receives the others' selections, or twice its share of all elements.
  report.dense = group.size() > 1 && coded >= 2 * count * sizeof(float);
  report.bytes_sent = report.dense ? count * sizeof(float) : own.bytes;
  if (report.dense) {
    reduce_dense(group, indices, output, count, call);
  } else {
    reduce_coded(group, encode(indices, output, count), all, output, count, call);
  }
  return report;
}

}  // namespace rondo
