#include "kernels/element.h"
#include "kernels/rows/rows.h"

// Selection by magnitude (select.h). See element.h on namespaces.
namespace rondo {
namespace {

// Elements that are compared at once. 32: at 1 in 100 three quarters of the groups have none to look at one by one.
constexpr size_t kGroup = 32;

template <bool kHasResidual>
RONDO_INLINE float value_of(const Byte* input, const Byte* residual, size_t i) {
  const float value = load_unaligned<float>(input + 4 * i);
  return kHasResidual ? value + load_unaligned<float>(residual + 4 * i) : value;
}

// The bits of magnitudes are ordered as the magnitudes are, with infinity and then NaN at the top.
RONDO_INLINE uint32_t magnitude_of_bits(float value) { return float_bits(value) & 0x7fffffffu; }

// Appends one element to what was found, if it is selected. Written in any case: no branch that depends on values.
RONDO_INLINE void append(const SelectCall& call, Selected& found, size_t i, float value) {
  call.indices[found.count] = call.first + uint32_t(i);
  call.values[found.count] = value;
  found.count += magnitude_of_bits(value) >= call.least;
}

template <bool kHasResidual>
Selected select_of(const SelectCall& call) {
  const Byte* input = static_cast<const Byte*>(call.input);
  const Byte* residual = static_cast<const Byte*>(call.residual);
  Selected found = {0, 0};
  size_t begin = 0;
  for (; begin + kGroup <= call.count; begin += kGroup) {
    float values[kGroup];
    int32_t largest = 0;
    RONDO_VECTOR_LOOP
    for (size_t i = 0; i < kGroup; ++i) {
      values[i] = value_of<kHasResidual>(input, residual, begin + i);
      const int32_t magnitude = int32_t(magnitude_of_bits(values[i]));
      largest = largest > magnitude ? largest : magnitude;
    }
    found.largest = found.largest > uint32_t(largest) ? found.largest : uint32_t(largest);
    if (uint32_t(largest) < call.least) continue;
    for (size_t i = 0; i < kGroup; ++i) append(call, found, begin + i, values[i]);
  }
  for (size_t i = begin; i < call.count; ++i) {
    const float value = value_of<kHasResidual>(input, residual, i);
    const uint32_t magnitude = magnitude_of_bits(value);
    found.largest = found.largest > magnitude ? found.largest : magnitude;
    append(call, found, i, value);
  }
  return found;
}

}  // namespace

namespace RONDO_KERNEL_SET {

Selected select_by_magnitude(const SelectCall& call) {
  return call.residual != nullptr ? select_of<true>(call) : select_of<false>(call);
}

}  // namespace RONDO_KERNEL_SET
}  // namespace rondo
