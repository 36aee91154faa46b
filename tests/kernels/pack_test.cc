// Packed elements: equal bits come back, by every instruction set from equal bytes; what is no packed elements is found
// out, and nothing is written outside of the elements.
#include "kernels/pack.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/kernels/instruction_sets.h"
#include "tests/support/random.h"

namespace rondo::testing {
namespace {

constexpr DType kPackedTypes[] = {DType::kBfloat16, DType::kFloat32};
constexpr size_t kCounts[] = {0, 1, 3, 255, 256, 257, 511, 512, 513, 1000, 5000};

using Bytes = std::vector<unsigned char>;
// The bits of element i, as a float32's; of a bfloat16 the upper half is taken.
using Draw = uint32_t (*)(Random& random, size_t i);

uint32_t weight(Random& random, size_t) {  // nearly normal, as initialisers and training make them
  double sum = 0;
  for (int i = 0; i < 12; ++i) sum += static_cast<double>(random.below(1 << 20)) / (1 << 20) - 0.5;
  return std::bit_cast<uint32_t>(static_cast<float>(0.02 * sum));
}
uint32_t anything(Random& random, size_t) { return static_cast<uint32_t>(random.next()); }
uint32_t special(Random& random, size_t) {
  // NaNs with and without payload, infinities, zeros, denormals, the largest and least.
  constexpr uint32_t kBits[] = {0x7fc00000, 0xffc12345, 0x7f810001, 0x7f800000, 0xff800000, 0,
                                0x80000000, 1,          0x80010000, 0x7f7fffff, 0x00800000, 0x3f800000};
  return kBits[random.below(std::size(kBits))];
}
uint32_t zero(Random&, size_t) { return 0; }
uint32_t rounded_weight(Random& random, size_t i) { return weight(random, i) & 0xffff0000; }
// Exponents that escape: about as many as still gain, in a block.
uint32_t bound_of_gain(Random& random, size_t i) {
  return (i % 256 < 155 + random.below(10) ? 0x20000000 : 0x3f800000) | static_cast<uint32_t>(random.below(1 << 23));
}
uint32_t outlier(Random& random, size_t i) { return i % 700 == 13 ? 0x7f800000 : weight(random, i); }
constexpr Draw kDraws[] = {weight, anything, special, zero, rounded_weight, bound_of_gain, outlier};

Bytes elements_of(DType dtype, Draw draw, size_t count, uint64_t seed) {
  Random random(seed);
  const size_t bytes = dtype_bytes(dtype);
  Bytes elements(count * bytes);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = draw(random, i);
    std::memcpy(elements.data() + i * bytes, reinterpret_cast<const unsigned char*>(&bits) + 4 - bytes, bytes);
  }
  return elements;
}

// At an odd address, with a byte behind that must stay.
Bytes packed(InstructionSet set, DType dtype, const Bytes& elements) {
  const size_t count = elements.size() / dtype_bytes(dtype), most = packed_bytes(dtype_bytes(dtype), count);
  Bytes from(1, 0), to(most + 2, 0xee);
  from.insert(from.end(), elements.begin(), elements.end());
  const size_t bytes = pack(dtype, from.data() + 1, count, to.data() + 1, set);
  CHECK(bytes <= most);
  CHECK_EQ(to.back(), 0xee);
  return {to.begin() + 1, to.begin() + 1 + static_cast<ptrdiff_t>(bytes)};
}

// `from` has the exact length, so that the address sanitizer sees what lies beyond.
bool unpacks(InstructionSet set, DType dtype, std::span<const unsigned char> bytes, size_t count, Bytes& elements) {
  const auto from = std::make_unique<unsigned char[]>(bytes.size());
  if (!bytes.empty()) std::memcpy(from.get(), bytes.data(), bytes.size());
  elements.assign(count * dtype_bytes(dtype) + 1, 0xee);
  const bool good = unpack(dtype, from.get(), bytes.size(), count, elements.data(), set);
  CHECK_EQ(elements.back(), 0xee);
  elements.pop_back();
  return good;
}

}  // namespace

TEST_CASE("packed: equal bits come back, every instruction set makes equal bytes") {
  for (const DType dtype : kPackedTypes) {
    for (size_t d = 0; d < std::size(kDraws); ++d) {
      for (const size_t count : kCounts) {
        for (uint64_t seed = 0; seed < 3; ++seed) {
          CAPTURE(d);
          CAPTURE(count);
          const Bytes elements = elements_of(dtype, kDraws[d], count, seed);
          const Bytes wanted = packed(InstructionSet::kBaseline, dtype, elements);
          for (const InstructionSet set : available_instruction_sets()) {
            CHECK(packed(set, dtype, elements) == wanted);
            Bytes back;
            CHECK(unpacks(set, dtype, wanted, count, back));
            CHECK(back == elements);
          }
        }
      }
    }
  }
}

TEST_CASE("packed: weights of bfloat16 take at most 0.715 of their bytes, those of float32 0.87, rounded ones 0.38") {
  constexpr size_t kMany = 1 << 16;
  const auto share = [](DType dtype, Draw draw) {
    const Bytes elements = elements_of(dtype, draw, kMany, 7);
    return static_cast<double>(packed(active_instruction_set(), dtype, elements).size()) /
           static_cast<double>(elements.size());
  };
  CHECK(share(DType::kBfloat16, weight) < 0.715);
  CHECK(share(DType::kBfloat16, outlier) < 0.83);  // in a third of the blocks nothing is gained
  CHECK(share(DType::kFloat32, weight) < 0.87);
  CHECK(share(DType::kFloat32, rounded_weight) < 0.38);
  CHECK(share(DType::kBfloat16, zero) < 0.70);
}

TEST_CASE("packed: bytes that are cut, lengthened or changed write nothing outside, and wrong lengths are found") {
  for (const DType dtype : kPackedTypes) {
    for (const Draw draw : {&weight, &rounded_weight, &special, &bound_of_gain}) {
      const size_t count = 600;
      const Bytes good = packed(active_instruction_set(), dtype, elements_of(dtype, draw, count, 3));
      Bytes back;
      for (const InstructionSet set : available_instruction_sets()) {
        for (size_t cut = 0; cut < good.size(); cut += 1 + cut / 40) {
          CHECK_FALSE(unpacks(set, dtype, std::span(good).first(cut), count, back));
        }
        Bytes longer = good;
        longer.push_back(0);
        CHECK_FALSE(unpacks(set, dtype, longer, count, back));
        Random random(11);
        for (int i = 0; i < 2000; ++i) {
          Bytes bad = good;
          for (uint64_t n = random.between(1, 3); n > 0; --n) {
            bad[random.chance(30) ? random.below(3) : random.below(bad.size())] =
                static_cast<unsigned char>(random.next());
          }
          unpacks(set, dtype, bad, count, back);
        }
      }
    }
  }
}

TEST_CASE("packed: a number of escapes that the codes do not have is found") {
  Bytes bad = packed(active_instruction_set(), DType::kBfloat16, elements_of(DType::kBfloat16, weight, 256, 1)), back;
  ++bad[1];
  bad.push_back(0);
  CHECK_FALSE(unpacks(active_instruction_set(), DType::kBfloat16, bad, 256, back));
  bad[1] = 200;
  CHECK_FALSE(unpacks(active_instruction_set(), DType::kBfloat16, bad, 256, back));
}

}  // namespace rondo::testing
