// Selection by magnitude: as a plain loop, by every instruction set, at every length and alignment.
#include "kernels/select.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/kernels/instruction_sets.h"
#include "tests/support/random.h"

namespace rondo::testing {
namespace {

constexpr uint64_t kSeed = 29;
constexpr size_t kCounts[] = {0, 1, 31, 32, 33, 64, 100, 1000};

uint32_t magnitude(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffffu; }

std::vector<float> random_values(Random& random, size_t count) {
  constexpr float kSpecial[] = {0.0f, -0.0f, 1e-40f, std::numeric_limits<float>::infinity(), 1.0f, -1.0f};
  std::vector<float> values(count);
  for (float& value : values) {
    value = random.chance(20) ? kSpecial[random.below(6)] : static_cast<float>(random.below(2001)) * 1e-3f - 1.0f;
  }
  return values;
}

void check(InstructionSet set, Random& random, size_t count, bool has_residual, size_t offset) {
  const std::vector<float> input = random_values(random, count), residual = random_values(random, count);
  // Not aligned to elements.
  std::vector<unsigned char> bytes(4 * count + 8), more(4 * count + 8);
  if (count > 0) std::memcpy(bytes.data() + offset, input.data(), 4 * count);
  if (count > 0) std::memcpy(more.data() + offset, residual.data(), 4 * count);
  const uint32_t least = random.chance(10) ? 0 : magnitude(static_cast<float>(random.below(1000)) * 1e-3f);
  std::vector<uint32_t> indices(count + 1, 77), wanted;
  std::vector<float> values(count + 1, 7.0f), wanted_values;
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const float u = has_residual ? input[i] + residual[i] : input[i];
    largest = std::max(largest, magnitude(u));
    if (magnitude(u) < least) continue;
    wanted.push_back(static_cast<uint32_t>(i) + 5);
    wanted_values.push_back(u);
  }
  const Selected found = select_magnitudes({bytes.data() + offset, has_residual ? more.data() + offset : nullptr, count,
                                            least, 5, indices.data(), values.data()},
                                           set);
  CAPTURE(std::string(instruction_set_name(set)));
  CAPTURE(count);
  CHECK_EQ(found.largest, largest);
  REQUIRE_EQ(found.count, wanted.size());
  CHECK_EQ(indices.back(), 77);
  CHECK_EQ(values.back(), 7.0f);
  indices.resize(wanted.size());
  CHECK(indices == wanted);
  if (!wanted.empty()) CHECK_EQ(std::memcmp(values.data(), wanted_values.data(), 4 * wanted.size()), 0);
}

}  // namespace

TEST_CASE("selection: every instruction set finds what a plain loop finds") {
  MESSAGE("seed ", kSeed);
  for (const InstructionSet set : available_instruction_sets()) {
    Random random(kSeed);
    for (const size_t count : kCounts) {
      for (int i = 0; i < 20; ++i) check(set, random, count, i % 2 == 0, static_cast<size_t>(i) % 4);
    }
  }
}

}  // namespace rondo::testing
