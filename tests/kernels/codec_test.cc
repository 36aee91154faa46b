// The conversions between 16-bit floats and float32, exhaustively.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/codec_unit.h"
#include "tests/kernels/reference.h"

namespace rondo {
namespace {

struct NamedUnit {
  std::string name;
  const CodecUnit* codecs;
};

std::vector<NamedUnit> units() {
  std::vector<NamedUnit> list = {{"baseline", &kBaselineCodecs}};
  if (instruction_set_available(InstructionSet::kAvx2))
    list.push_back({"avx2", &kAvx2Codecs});
  else
    MESSAGE("NOT TESTED on this processor: the conversions of avx2");
  return list;
}

constexpr DType k16Bits[] = {DType::kFloat16, DType::kBfloat16};

// Every value against the reference, four at most reported.
void check_encode(const NamedUnit& unit, DType dtype, const std::vector<float>& values) {
  std::vector<uint16_t> stored(values.size());
  unit.codecs->encode(dtype, values.data(), stored.data(), values.size());
  int wrong = 0;
  for (size_t i = 0; i < values.size() && wrong < 4; ++i) {
    const uint16_t expected = reference_encode16(dtype, values[i]);
    if (stored[i] == expected) continue;
    ++wrong;
    CHECK_MESSAGE(stored[i] == expected, unit.name, " ", std::string(dtype_name(dtype)), " of ",
                  std::bit_cast<uint32_t>(values[i]));
  }
}

TEST_CASE("decode: all 65536 values") {
  // Every stored value becomes exactly its number; NaN stays NaN.
  std::vector<uint16_t> stored(65536);
  for (size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<uint16_t>(i);
  for (const NamedUnit& unit : units())
    for (DType dtype : k16Bits) {
      std::vector<float> values(stored.size());
      unit.codecs->decode(dtype, stored.data(), values.data(), stored.size());
      for (size_t i = 0; i < stored.size(); ++i) {
        const double expected = reference_decode16(dtype, stored[i]);
        const bool same = std::isnan(expected)
                              ? std::isnan(values[i])
                              : expected == values[i] && std::signbit(expected) == std::signbit(values[i]);
        if (!same) CHECK_MESSAGE(same, unit.name, " ", std::string(dtype_name(dtype)), " ", i);
      }
    }
}

TEST_CASE("encode: every value, every midpoint and their neighbours") {
  // A float32 keeps 13 (float16) or 16 (bfloat16) bits that rounding drops: all upper parts, with the lower parts at,
  // just beside and half way between two values. Denormals, overflow, infinities and NaN are among them.
  for (const NamedUnit& unit : units())
    for (DType dtype : k16Bits) {
      const int dropped = dtype == DType::kFloat16 ? 13 : 16;
      const uint32_t half = 1u << (dropped - 1), all = 2 * half - 1;
      std::vector<float> values;
      for (uint64_t upper = 0; upper < uint64_t{1} << (32 - dropped); ++upper)
        for (uint32_t lower : {0u, 1u, half - 1, half, half + 1, all, half / 2, half + half / 2})
          values.push_back(std::bit_cast<float>(static_cast<uint32_t>(upper << dropped) | lower));
      check_encode(unit, dtype, values);
    }
}

TEST_CASE("encode: random bits") {
  // Any float32.
  constexpr uint32_t kSeed = 11;
  MESSAGE("seed ", kSeed);
  std::mt19937 random(kSeed);
  std::vector<float> values(1 << 20);
  for (float& value : values) value = std::bit_cast<float>(static_cast<uint32_t>(random()));
  for (const NamedUnit& unit : units())
    for (DType dtype : k16Bits) check_encode(unit, dtype, values);
}

}  // namespace
}  // namespace rondo
