#include "ring/compress/selection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/select.h"
#include "ring/base/hash.h"

namespace rondo {
namespace {

// Bits of a float32 without its sign are ordered as the magnitudes are. From these on they are infinity and NaN.
constexpr uint32_t kInfinityBits = 0x7f800000u;

uint32_t magnitude_bits(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffffu; }

// Added in float32, as the kernel of select_magnitudes() does: both see the same bits.
float element(const Contribution& u, uint64_t i) {
  return u.residual == nullptr ? u.input[i] : u.input[i] + u.residual[i];
}

// Requires that there is one.
uint64_t first_not_finite(const Contribution& u) {
  uint64_t i = 0;
  while (magnitude_bits(element(u, i)) < kInfinityBits) ++i;
  return i;
}

// One pass: the elements of magnitude `least` and above, those that are not finite among them.
Selection collect_all(const Contribution& u, uint32_t least, uint32_t& largest) {
  Selection found;
  // Only what is written becomes memory.
  found.index_memory = std::make_unique_for_overwrite<uint32_t[]>(u.count);
  found.value_memory = std::make_unique_for_overwrite<float[]>(u.count);
  const Selected selected =
      select_magnitudes({u.input, u.residual, u.count, least, 0, found.index_memory.get(), found.value_memory.get()});
  found.count = selected.count;
  largest = selected.largest;
  return found;
}

// The same, or nothing where an element is not finite.
Selection collect(const Contribution& u, uint32_t least) {
  uint32_t largest = 0;
  Selection found = collect_all(u, least, largest);
  if (largest < kInfinityBits) return found;
  found.count = 0;
  found.not_finite = first_not_finite(u) + 1;
  return found;
}

// The magnitude, as bits, of the sample's element that has `place` larger ones or equal ones before it.
uint32_t magnitude_in_sample(const Contribution& u, uint64_t place) {
  const uint64_t stride = u.count / kSample;
  std::vector<uint32_t> sample(kSample);
  for (uint64_t j = 0; j < kSample; ++j) sample[j] = magnitude_bits(element(u, sample_place(j, stride)));
  const auto at = sample.begin() + static_cast<ptrdiff_t>(place);
  std::nth_element(sample.begin(), at, sample.end(), std::greater<>());
  return *at;
}

// Leaves the k largest; of equal ones the lowest indices.
void cut_to(Selection& found, uint64_t k) {
  if (found.count <= k) return;
  std::vector<uint32_t> magnitudes(found.count);
  for (uint64_t c = 0; c < found.count; ++c) magnitudes[c] = magnitude_bits(found.value_memory[c]);
  // nth_element puts the larger ones before kth, so only those that are equal to it have to be counted.
  const auto kth = magnitudes.begin() + static_cast<ptrdiff_t>(k - 1);
  std::nth_element(magnitudes.begin(), kth, magnitudes.end(), std::greater<>());
  const uint32_t least = *kth;
  const auto larger = std::count_if(magnitudes.begin(), kth, [&](uint32_t m) { return m > least; });
  uint64_t equal = k - static_cast<uint64_t>(larger);  // of the least that go
  uint64_t kept = 0;
  for (uint64_t c = 0; c < found.count; ++c) {
    const uint32_t magnitude = magnitude_bits(found.value_memory[c]);
    if (magnitude < least || (magnitude == least && equal == 0)) continue;
    equal -= magnitude == least;
    found.index_memory[kept] = found.index_memory[c];
    found.value_memory[kept++] = found.value_memory[c];
  }
  found.count = kept;
}

Selection select_top(const Contribution& u, uint64_t k) {
  // Five standard deviations more than k are expected to reach the guess: then the k largest are among them.
  const double expected = static_cast<double>(k) / static_cast<double>(u.count) * kSample;
  const auto place = static_cast<uint64_t>(expected + 5 * std::sqrt(expected) + 8);
  const bool guesses = u.count > 2 * kSample && place < kSample;
  Selection found = collect(u, guesses ? magnitude_in_sample(u, place) : 0);
  if (found.not_finite != 0) return found;
  if (found.count < k) found = collect(u, 0);  // the sample misled
  cut_to(found, k);
  return found;
}

// The least float32 that is not below a threshold, as bits.
uint32_t threshold_bits(double spars) {
  float least = static_cast<float>(spars);
  if (static_cast<double>(least) < spars) least = std::nextafter(least, HUGE_VALF);
  return magnitude_bits(least);
}

// At least one element goes, however small spars is.
Selection select_of_tensor(const Contribution& u, const SparseOptions& options) {
  if (u.count == 0) return {};
  if (options.select == Select::kThreshold) return collect(u, threshold_bits(options.spars));
  const double wanted = std::ceil(options.spars * static_cast<double>(u.count));
  return select_top(u, std::clamp<uint64_t>(static_cast<uint64_t>(wanted), 1, u.count));
}

}  // namespace

uint64_t sample_place(uint64_t j, uint64_t stride) { return j * stride + mix64(j) % stride; }

// Each tensor is selected from by itself; indices count from the buffer's beginning.
Selection select(const Contribution& u, const SparseOptions& options) {
  if (options.tensors.empty()) return select_of_tensor(u, options);
  Selection all;
  all.index_memory = std::make_unique_for_overwrite<uint32_t[]>(u.count);
  all.value_memory = std::make_unique_for_overwrite<float[]>(u.count);
  uint64_t begin = 0;
  for (const uint64_t count : options.tensors) {
    const float* residual = u.residual == nullptr ? nullptr : u.residual + begin;
    const Selection one = select_of_tensor({u.input + begin, residual, count}, options);
    if (one.not_finite != 0) {
      all.not_finite = begin + one.not_finite;
      all.count = 0;
      return all;
    }
    for (uint64_t c = 0; c < one.count; ++c) {
      all.index_memory[all.count] = one.index_memory[c] + static_cast<uint32_t>(begin);
      all.value_memory[all.count++] = one.value_memory[c];
    }
    begin += count;
  }
  return all;
}

// 1: the bits of the least magnitude above zero. Infinite values go, too, since sums may be.
Selection select_nonzero(const float* values, uint64_t count) {
  uint32_t largest = 0;
  return collect_all({values, nullptr, count}, 1, largest);
}

}  // namespace rondo
