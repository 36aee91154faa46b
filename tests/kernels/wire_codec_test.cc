// Wire formats: the error that each promises, the same bits by every instruction set, and what is not finite is found.
#include "kernels/wire_codec.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "tests/kernels/instruction_sets.h"
#include "tests/support/element.h"
#include "tests/support/float_modes.h"
#include "tests/support/random.h"
#include "tests/support/wire_error.h"

namespace rondo::testing {
namespace {

constexpr size_t kCounts[] = {0, 1, 2, 127, 128, 129, 255, 256, 1000};

// Values of either sign, 2^-12 .. 2^12, and some zeros.
std::vector<float> random_values(uint64_t seed, size_t count) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const double fraction = 1 + static_cast<double>(random.below(1 << 23)) / (1 << 23);
    value = static_cast<float>(std::ldexp(fraction, static_cast<int>(random.below(24)) - 12));
    if (random.chance(50)) value = -value;
    if (random.chance(5)) value = 0;
  }
  return values;
}

struct Coded {
  std::vector<unsigned char> bytes;
  uint64_t unfit = 0;
};

Coded encode(InstructionSet set, WireFormat format, const std::vector<float>& values, WireRounding rounding = {}) {
  Coded coded;
  coded.bytes.resize(wire_bytes(format, values.size()) + 1, 0xee);
  coded.unfit = wire_encode(format, values.data(), values.size(), coded.bytes.data(), rounding, set);
  CHECK_EQ(coded.bytes.back(), 0xee);
  return coded;
}

std::vector<float> decode(InstructionSet set, WireFormat format, const Coded& coded, size_t count) {
  std::vector<float> values(count + 1, 7.0f);
  wire_decode(format, coded.bytes.data(), count, values.data(), set);
  CHECK_EQ(values.back(), 7.0f);
  values.pop_back();
  return values;
}

float largest_of_block(const std::vector<float>& values, size_t i) {
  float largest = 0;
  const size_t first = i / kWireBlock * kWireBlock;
  for (size_t k = first; k < std::min(values.size(), first + kWireBlock); ++k) {
    largest = std::max(largest, std::abs(values[k]));
  }
  return largest;
}

}  // namespace

TEST_CASE("wire formats: errors are within what is promised, in blocks of every length") {
  for (const WireFormat format : kCodedFormats) {
    for (const size_t count : kCounts) {
      const std::vector<float> values = random_values(count + 17, count);
      const Coded coded = encode(active_instruction_set(), format, values);
      CHECK_EQ(coded.unfit, count);
      const std::vector<float> decoded = decode(active_instruction_set(), format, coded, count);
      for (size_t i = 0; i < count; ++i) {
        CAPTURE(std::string(wire_format_name(format)));
        CAPTURE(i);
        CHECK(std::abs(double{values[i]} - decoded[i]) <= wire_error(format, values[i], largest_of_block(values, i)));
      }
    }
  }
}

TEST_CASE("wire formats: what rounding to nearest loses is exact in float32") {
  for (const WireFormat format : kCodedFormats) {
    const std::vector<float> values = random_values(5, 1024);
    const auto decoded =
        decode(active_instruction_set(), format, encode(active_instruction_set(), format, values), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const float lost = values[i] - decoded[i];
      CHECK_EQ(double{values[i]} - double{decoded[i]}, double{lost});
    }
  }
}

TEST_CASE("wire formats: every instruction set gives the same bytes and values") {
  for (const WireFormat format : kCodedFormats) {
    for (const bool stochastic : {false, true}) {
      if (stochastic && !wire_format_rounds_at_random(format)) continue;
      for (const size_t count : kCounts) {
        std::vector<float> values = random_values(count, count);
        if (count > 200) values[130] = std::numeric_limits<float>::infinity();
        if (count > 999) values[999] = std::numeric_limits<float>::quiet_NaN();
        const WireRounding rounding{stochastic, 99, 1234567};
        const Coded wanted = encode(InstructionSet::kBaseline, format, values, rounding);
        const auto decoded = decode(InstructionSet::kBaseline, format, wanted, count);
        for (const InstructionSet set : available_instruction_sets()) {
          CAPTURE(std::string(instruction_set_name(set)));
          CAPTURE(std::string(wire_format_name(format)));
          const Coded coded = encode(set, format, values, rounding);
          CHECK_EQ(coded.unfit, wanted.unfit);
          CHECK(coded.bytes == wanted.bytes);
          const auto same = decode(set, format, coded, count);
          CHECK_EQ(std::memcmp(same.data(), decoded.data(), count * sizeof(float)), 0);
        }
      }
    }
  }
}

TEST_CASE("wire formats: the first element that is not finite is found, and its block is not a number") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const WireFormat format : kCodedFormats) {
    for (const size_t at : {0u, 5u, 127u, 128u, 300u, 384u, 399u}) {
      std::vector<float> values(400, 1.0f);
      values[at] = kNan;
      values[399] = -std::numeric_limits<float>::infinity();
      const Coded coded = encode(active_instruction_set(), format, values);
      CHECK_EQ(coded.unfit, at);
      CHECK_FALSE(std::isfinite(decode(active_instruction_set(), format, coded, 400)[at]));
    }
  }
}

TEST_CASE("wire formats: an overflow at 16 bits is found") {
  std::vector<float> values(200, 1.0f);
  values[150] = 65519.996f;  // the largest that is rounded to 65504
  CHECK_EQ(encode(active_instruction_set(), WireFormat::kFloat16, values).unfit, 200);
  values[150] = -65520.0f;
  CHECK_EQ(encode(active_instruction_set(), WireFormat::kFloat16, values).unfit, 150);
  CHECK_EQ(encode(active_instruction_set(), WireFormat::kBfloat16, values).unfit, 200);
  values[150] = std::numeric_limits<float>::max();
  CHECK_EQ(encode(active_instruction_set(), WireFormat::kBfloat16, values).unfit, 150);
  CHECK_EQ(encode(active_instruction_set(), WireFormat::kInt8, values).unfit, 200);
}

TEST_CASE("wire formats: rounding at random depends on seed and number alone, and is right on average") {
  constexpr size_t kMany = 1 << 17;
  const std::vector<float> values(kMany, 0.3f);
  for (const WireFormat format : {WireFormat::kInt8, WireFormat::kInt4}) {
    std::vector<float> mixed = values;
    for (size_t i = 0; i < kMany; i += kWireBlock) mixed[i] = 1.0f;  // else 0.3 is the scale's largest, and exact
    const Coded once = encode(active_instruction_set(), format, mixed, {true, 7, 0});
    CHECK(once.bytes == encode(active_instruction_set(), format, mixed, {true, 7, 0}).bytes);
    CHECK(once.bytes != encode(active_instruction_set(), format, mixed, {true, 8, 0}).bytes);
    const std::vector<float> tail(mixed.begin() + 256, mixed.end());
    const Coded of_tail = encode(active_instruction_set(), format, tail, {true, 7, 256});
    CHECK_EQ(
        std::memcmp(of_tail.bytes.data(), once.bytes.data() + 2 * wire_block_bytes(format), of_tail.bytes.size() - 1),
        0);
    double sum = 0;
    for (const float value : decode(active_instruction_set(), format, once, kMany)) sum += value;
    const double wanted = 0.3 * kMany + 0.7 * kMany / kWireBlock;
    const double step = 1.0 / (format == WireFormat::kInt8 ? 127 : 7);
    CHECK(std::abs(sum - wanted) < 5 * step / 2 * std::sqrt(double{kMany}));  // five standard deviations
  }
}

namespace {

// 1 where int8 at random rounds up an element that lies `fraction` of a step above a code; by element of `blocks`
// blocks, whose first elements set the scale and are exact.
std::vector<double> rounded_up(double fraction, size_t blocks, uint64_t seed, uint64_t first) {
  const auto value = static_cast<float>((10 + fraction) / 127);
  std::vector<float> values(blocks * kWireBlock, value);
  for (size_t i = 0; i < values.size(); i += kWireBlock) values[i] = 1.0f;
  const InstructionSet set = active_instruction_set();
  const auto decoded =
      decode(set, WireFormat::kInt8, encode(set, WireFormat::kInt8, values, {true, seed, first}), values.size());
  std::vector<double> up(values.size());
  for (size_t i = 0; i < up.size(); ++i) up[i] = decoded[i] > 10.5f / 127 ? 1 : 0;
  return up;
}

// The choices of pairs (a, b), without a block's first element; each is up in half of the cases.
template <class Pair>
double correlation(size_t blocks, Pair pair) {
  double sum = 0;
  size_t count = 0;
  for (size_t block = 0; block < blocks; ++block) {
    for (size_t i = 1; i + 1 < kWireBlock / 2; ++i, ++count) {
      const auto [a, b] = pair(block * kWireBlock + i);
      sum += (2 * a - 1) * (2 * b - 1);
    }
  }
  return sum / std::sqrt(static_cast<double>(count));  // in standard deviations
}

}  // namespace

TEST_CASE("wire formats: rounding at random takes each neighbor as often as it is near, in both halves of blocks") {
  constexpr size_t kBlocks = 4096;
  for (const double fraction : {0.001, 0.1, 0.25, 0.5, 0.7, 0.999}) {
    for (const uint64_t seed : {0u, 1u, 77u}) {
      const std::vector<double> up = rounded_up(fraction, kBlocks, seed, 12345);
      for (const size_t half : {0u, 1u}) {
        double sum = 0, count = 0;
        for (size_t i = 0; i < up.size(); ++i) {
          if (i % kWireBlock == 0 || i % kWireBlock / (kWireBlock / 2) != half) continue;
          sum += up[i];
          ++count;
        }
        CAPTURE(fraction);
        CAPTURE(seed);
        CHECK(std::abs(sum - fraction * count) < 5 * std::sqrt(count * fraction * (1 - fraction)) + count * 1e-4);
      }
    }
  }
}

TEST_CASE("wire formats: choices at random of neighbors, halves, blocks and seeds do not go together") {
  constexpr size_t kBlocks = 4096;
  for (const uint64_t seed : {0u, 1u, 1000u}) {
    const std::vector<double> up = rounded_up(0.5, kBlocks, seed, 0), next = rounded_up(0.5, kBlocks, seed + 1, 0);
    const auto with = [&](size_t apart) {
      return correlation(kBlocks - 1, [&](size_t i) { return std::pair{up[i], up[i + apart]}; });
    };
    CHECK(std::abs(with(1)) < 5);
    CHECK(std::abs(with(kWireBlock / 2)) < 5);
    CHECK(std::abs(with(kWireBlock)) < 5);
    CHECK(std::abs(correlation(kBlocks, [&](size_t i) { return std::pair{up[i], next[i]}; })) < 5);
  }
}

TEST_CASE("elements of 16 bits in memory: narrowed and widened as their type says, by every instruction set") {
  for (const DType type : {DType::kFloat16, DType::kBfloat16}) {
    for (const size_t count : kCounts) {
      std::vector<float> values = random_values(count + 3, count);
      for (const size_t large : {count, count - 1, count / 2}) {  // the first: none
        if (large < count) values[large] = type == DType::kFloat16 ? 65520.0f : 0x1.ffp127f;
        for (const InstructionSet set : available_instruction_sets()) {
          std::vector<uint16_t> narrowed(count + 1, 0xeeee);
          CHECK_EQ(narrow(type, values.data(), count, narrowed.data(), set), large);
          CHECK_EQ(narrowed.back(), 0xeeee);
          std::vector<float> widened(count + 1, 7.0f);
          widen(type, narrowed.data(), count, widened.data(), set);
          CHECK_EQ(widened.back(), 7.0f);
          for (size_t i = 0; i < count; ++i) {
            CHECK_EQ(narrowed[i], encode_float(type, values[i]));
            CHECK_EQ(widened[i], static_cast<float>(decode_float(type, narrowed[i])));
          }
        }
        if (count == 0) break;
      }
    }
  }
}

TEST_CASE("wire formats: a thread that flushes denormals gets the same bits") {
  std::vector<float> values(128, 1e-39f);
  for (size_t i = 0; i < values.size(); ++i) values[i] *= static_cast<float>(i);
  const Coded wanted = encode(active_instruction_set(), WireFormat::kBfloat16, values);
  const auto decoded = decode(active_instruction_set(), WireFormat::kBfloat16, wanted, 128);
  Coded coded;
  std::vector<float> same;
  {
    const FloatMode flushed(1);
    coded = encode(active_instruction_set(), WireFormat::kBfloat16, values);
    same = decode(active_instruction_set(), WireFormat::kBfloat16, wanted, 128);
    CHECK(flushed.stands());
  }
  CHECK(coded.bytes == wanted.bytes);
  CHECK_EQ(std::memcmp(same.data(), decoded.data(), 128 * sizeof(float)), 0);
  CHECK(decoded[100] > 0);
}

}  // namespace rondo::testing
