#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "rondo/sparse.h"

namespace rondo {

// u = input + residual (nullptr: none), count float32 below 2^32.
struct Contribution {
  const float* input = nullptr;
  const float* residual = nullptr;
  uint64_t count = 0;
};

// The elements of u that a rank sends: ascending indices, and u there.
struct Selection {
  std::unique_ptr<uint32_t[]> index_memory;
  std::unique_ptr<float[]> value_memory;
  uint64_t count = 0;
  uint64_t not_finite = 0;  // index plus 1 of u's first such element; then nothing is selected

  std::span<const uint32_t> indices() const { return {index_memory.get(), count}; }
  std::span<const float> values() const { return {value_memory.get(), count}; }
};

// u is read, once as a rule, and nothing is written. options: valid.
Selection select(const Contribution& u, const SparseOptions& options);
// Those that are not zero; infinities and NaN are selected, too.
Selection select_nonzero(const float* values, uint64_t count);

// Top-k guesses the magnitude of the kth largest element from a sample of u, where u has more than twice as many
// elements: element sample_place(j, stride) for j in 0 .. kSample - 1, stride = count / kSample.
inline constexpr uint64_t kSample = 1 << 15;
uint64_t sample_place(uint64_t j, uint64_t stride);

}  // namespace rondo
