// combine() gives the same bits whatever rounding, flushing or traps the calling thread has set, and leaves them set.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "tests/kernels/instruction_sets.h"
#include "tests/support/float_modes.h"

namespace rondo::testing {
namespace {

constexpr DType kFloats[] = {DType::kFloat32,  DType::kFloat64,    DType::kFloat16,
                             DType::kBfloat16, DType::kFloat8E4M3, DType::kFloat8E5M2};

std::vector<float> sums(InstructionSet set, DType dtype, const std::vector<float>& left,
                        const std::vector<float>& right) {
  std::vector<float> result(left.size());
  const void* sources[] = {left.data(), right.data()};
  void* target = result.data();
  combine_with(set, {.dtype = dtype, .op = Op::kSum},
               {.sources = sources, .targets = &target, .source_count = 2, .target_count = 1},
               left.size() * sizeof(float) / dtype_bytes(dtype));
  return result;
}

// The smallest denormals, and sums that rounding decides; 40 elements: a whole block and a rest.
struct Inputs {
  std::vector<float> left, right;
};
Inputs inputs() {
  Inputs in;
  for (uint32_t i = 0; i < 40; ++i) {
    in.left.push_back(i % 2 == 0 ? std::bit_cast<float>(i) : 1.0f);
    in.right.push_back(i % 2 == 0 ? std::bit_cast<float>(3 * i) : 0x1p-25f * static_cast<float>(i));
  }
  return in;
}

bool same_bits(const std::vector<float>& left, const std::vector<float>& right) {
  for (size_t i = 0; i < left.size(); ++i)
    if (std::bit_cast<uint32_t>(left[i]) != std::bit_cast<uint32_t>(right[i])) return false;
  return true;
}

TEST_CASE("the caller's rounding and flush-to-zero do not matter and stay") {
  // Upward rounding would make other sums. A rank that flushes must not get other sums than a rank that does not.
  const Inputs in = inputs();
  for (InstructionSet set : available_instruction_sets()) {
    for (DType dtype : kFloats) {
      const std::vector<float> expected = sums(set, dtype, in.left, in.right);
      CHECK(std::fpclassify(expected[2]) != FP_ZERO);
      for (int which = 1; which < kFloatModes; ++which) {
        std::vector<float> found;
        {
          const FloatMode mode(which);
          found = sums(set, dtype, in.left, in.right);
          CHECK(mode.stands());
        }
        CHECK(same_bits(found, expected));
      }
    }
  }
}

}  // namespace
}  // namespace rondo::testing
