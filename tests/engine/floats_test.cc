// Random floats: the error of a sum is bounded, its bits are the same on every rank and in every run.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/engine/cases.h"
#include "tests/support/random.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

using Bytes = std::vector<std::byte>;

struct Format {
  DType dtype;
  int mantissa_bits;
  int bias;
  int exponents;    // either side of the bias, so that no sum of 8 overflows
  double roundoff;  // half the distance from 1 to the next value
  double smallest;  // the least positive value
};
constexpr Format kFormats[] = {
    {DType::kFloat16, 10, 15, 8, 0x1p-11, 0x1p-24},
    {DType::kBfloat16, 7, 127, 20, 0x1p-8, 0x1p-133},
    {DType::kFloat32, 23, 127, 20, 0x1p-24, 0x1p-149},
    {DType::kFloat64, 52, 1023, 20, 0x1p-53, 0x1p-1074},
};

// Finite values of either sign over many magnitudes.
Bytes random_values(const Format& format, uint64_t seed, size_t count) {
  Random random(seed);
  const size_t bytes = dtype_bytes(format.dtype);
  Bytes values(count * bytes);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t exponent = static_cast<uint64_t>(format.bias - format.exponents) +
                              random.below(static_cast<uint64_t>(2 * format.exponents));
    const uint64_t mantissa = random.below(uint64_t{1} << format.mantissa_bits);
    const uint64_t bits = (random.below(2) << (8 * bytes - 1)) | (exponent << format.mantissa_bits) | mantissa;
    std::memcpy(values.data() + i * bytes, &bits, bytes);
  }
  return values;
}

uint64_t seed_of(int rank, DType dtype) {
  return 1000 + 16 * static_cast<uint64_t>(rank) + static_cast<uint64_t>(dtype);
}

Bytes all_reduce(Communicator& group, const Bytes& input, DType dtype, Op op, Algorithm algorithm) {
  Bytes output(input.size());
  CallOptions options;
  options.algorithm = algorithm;
  group.all_reduce(input.data(), output.data(), input.size() / dtype_bytes(dtype), dtype, op, options);
  return output;
}

// Each of the world - 1 additions rounds once, to the dtype at worst (16 bits are folded in float32 and rounded where a
// partial sum is stored or sent); an average rounds once more. So |error| <= world * roundoff * sum|x|, to first order;
// 1.01 for the higher ones; and half the smallest value for each rounding of a subnormal.
void expect_bounded(const Format& format, int world, Op op, const Bytes& output, size_t count) {
  const size_t bytes = dtype_bytes(format.dtype);
  std::vector<Bytes> inputs;
  for (int r = 0; r < world; ++r) inputs.push_back(random_values(format, seed_of(r, format.dtype), count));
  for (size_t i = 0; i < count; ++i) {
    long double sum = 0, magnitude = 0;  // 64 bits of mantissa: float64 needs a finer reference than itself
    for (const Bytes& input : inputs) {
      const double x = read_element(input.data() + i * bytes, format.dtype);
      sum += x;
      magnitude += std::abs(x);
    }
    if (op == Op::kAverage) sum /= world, magnitude /= world;
    const long double got = read_element(output.data() + i * bytes, format.dtype);
    const long double bound = 1.01L * world * (format.roundoff * magnitude + format.smallest / 2);
    expect(std::abs(got - sum) <= bound,
           fmt::format("{} {} world {} element {}: {} instead of {}, bound {}", dtype_name(format.dtype), op_name(op),
                       world, i, static_cast<double>(got), static_cast<double>(sum), static_cast<double>(bound)));
  }
}

RankGroup group_of(int world) {
  RankGroup group;
  group.world = world;
  group.config.lanes = 2;
  group.config.slice_bytes = 4096;
  return group;
}

}  // namespace

TEST_CASE("sums and averages of random floats stay within their bound, with the same bits on all ranks") {
  constexpr size_t kCount = 5003;
  for (const int world : {2, 3, 5, 8}) {
    CAPTURE(world);
    CHECK(run_processes(group_of(world), [&](Communicator& group) {
            for (const Format& format : kFormats) {
              const Bytes input = random_values(format, seed_of(group.rank(), format.dtype), kCount);
              for (const Op op : {Op::kSum, Op::kAverage}) {
                for (const Algorithm algorithm : available_algorithms(Collective::kAllReduce, group.topology())) {
                  const Bytes output = all_reduce(group, input, format.dtype, op, algorithm);
                  expect_same_everywhere(group, output, algorithm_name(algorithm));
                  if (group.rank() == 0) expect_bounded(format, world, op, output, kCount);
                }
              }
            }
          }) == "");
  }
}

TEST_CASE("the same input gives the same bits 200 times, whatever the timing") {
  // Proves: the order of additions comes from the plan and not from who is first.
  constexpr size_t kCount = 3001;
  const RankBody body = [](Communicator& group) {
    for (const Format& format : kFormats) {
      const Bytes input = random_values(format, seed_of(group.rank(), format.dtype), kCount);
      for (const Algorithm algorithm : available_algorithms(Collective::kAllReduce, group.topology())) {
        const Bytes first = all_reduce(group, input, format.dtype, Op::kSum, algorithm);
        for (int i = 1; i < 200; ++i) {
          const Bytes again = all_reduce(group, input, format.dtype, Op::kSum, algorithm);
          expect(again == first, fmt::format("{} by {}: run {} has other bits", dtype_name(format.dtype),
                                             algorithm_name(algorithm), i));
        }
      }
    }
  };
  CHECK(run_processes(group_of(4), body) == "");
  CHECK(run_threads(group_of(3), body) == "");
}

TEST_CASE("a NaN or two opposite infinities on any ranks are a NaN on every rank, and one infinity stays") {
  CHECK(run_processes(group_of(3), [](Communicator& group) {
          constexpr float kInfinity = std::numeric_limits<float>::infinity();
          const int rank = group.rank();
          const float input[4] = {rank == 2 ? std::nanf("") : 1.0f,
                                  rank == 0   ? kInfinity
                                  : rank == 1 ? -kInfinity
                                              : 1.0f,
                                  rank == 1 ? kInfinity : -5.0f, 3.0e38f};
          for (const Algorithm algorithm : available_algorithms(Collective::kAllReduce, group.topology())) {
            float output[4] = {};
            CallOptions options;
            options.algorithm = algorithm;
            group.all_reduce(input, output, 4, DType::kFloat32, Op::kSum, options);
            expect(std::isnan(output[0]) && std::isnan(output[1]), "NaN");
            expect(output[2] == kInfinity && output[3] == kInfinity, "infinity, and an overflow to it");
            expect_same_everywhere(group, std::as_bytes(std::span(output)), algorithm_name(algorithm));
          }
        }) == "");
}

}  // namespace rondo::testing
