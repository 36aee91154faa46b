// The conversions between float32 and the floats of 16 and 8 bits, exhaustively.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/combine.h"
#include "tests/kernels/codec_unit.h"
#include "tests/support/element.h"

namespace rondo::testing {
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

constexpr DType kSmall[] = {DType::kFloat16, DType::kBfloat16, DType::kFloat8E4M3, DType::kFloat8E5M2};

// Every value against the reference, four at most reported.
void check_encode(const NamedUnit& unit, DType dtype, const std::vector<float>& values) {
  const size_t bytes = dtype_bytes(dtype);
  std::vector<unsigned char> stored(values.size() * bytes);
  unit.codecs->encode(dtype, values.data(), stored.data(), values.size());
  int wrong = 0;
  for (size_t i = 0; i < values.size() && wrong < 4; ++i) {
    const uint64_t expected = encode_float(dtype, values[i]), found = load_element(dtype, &stored[i * bytes]);
    if (found == expected) continue;
    ++wrong;
    CHECK_MESSAGE(found == expected, unit.name, " ", std::string(dtype_name(dtype)), " of ",
                  std::bit_cast<uint32_t>(values[i]));
  }
}

TEST_CASE("decode: every stored value") {
  // Every stored value becomes exactly its number; NaN stays NaN.
  for (const NamedUnit& unit : units())
    for (DType dtype : kSmall) {
      const size_t bytes = dtype_bytes(dtype), count = size_t{1} << (8 * bytes);
      std::vector<unsigned char> stored(count * bytes);
      for (size_t i = 0; i < count; ++i) store_element(dtype, &stored[i * bytes], i);
      std::vector<float> values(count);
      unit.codecs->decode(dtype, stored.data(), values.data(), count);
      for (size_t i = 0; i < count; ++i) {
        const double expected = decode_float(dtype, i);
        const bool same = std::isnan(expected)
                              ? std::isnan(values[i])
                              : expected == values[i] && std::signbit(expected) == std::signbit(values[i]);
        if (!same) CHECK_MESSAGE(same, unit.name, " ", std::string(dtype_name(dtype)), " ", i, " is ", values[i]);
      }
    }
}

TEST_CASE("encode: every value, every midpoint and their neighbors") {
  // Rounding drops 13 to 21 bits of a float32: all upper parts, with the lower parts at, just beside and half way
  // between two values.
  for (const NamedUnit& unit : units())
    for (DType dtype : kSmall) {
      const int dropped = 23 - float_format(dtype).fraction_bits;
      const uint32_t half = 1u << (dropped - 1), all = 2 * half - 1;
      std::vector<float> values;
      for (uint64_t upper = 0; upper < uint64_t{1} << (32 - dropped); ++upper)
        for (uint32_t lower : {0u, 1u, half - 1, half, half + 1, all, half / 2, half + half / 2})
          values.push_back(std::bit_cast<float>(static_cast<uint32_t>(upper << dropped) | lower));
      check_encode(unit, dtype, values);
    }
}

TEST_CASE("encode: the upper 19 bits of every float32, the lower ones 0 or 1") {
  // Each midpoint of two values of 8 bits, denormal or not, and a value just beside it.
  for (const NamedUnit& unit : units())
    for (DType dtype : {DType::kFloat8E4M3, DType::kFloat8E5M2}) {
      std::vector<float> values;
      for (uint64_t upper = 0; upper < 1 << 19; ++upper)
        for (uint32_t lower : {0u, 1u})
          values.push_back(std::bit_cast<float>(static_cast<uint32_t>(upper << 13) | lower));
      check_encode(unit, dtype, values);
    }
}

TEST_CASE("encode: random bits") {
  // Any float32.
  constexpr uint32_t kSeed = 11;
  MESSAGE("seed ", kSeed);
  std::mt19937 random(kSeed);
  std::vector<float> values(1 << 18);
  for (float& value : values) value = std::bit_cast<float>(static_cast<uint32_t>(random()));
  for (const NamedUnit& unit : units())
    for (DType dtype : kSmall) check_encode(unit, dtype, values);
}

}  // namespace
}  // namespace rondo::testing
