// Random floats: the error of a sum is bounded, its bits are the same on every rank and in every run.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/engine/cases.h"
#include "tests/support/element.h"
#include "tests/support/random.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

using Bytes = std::vector<std::byte>;

constexpr DType kFloats[] = {DType::kFloat16, DType::kBfloat16,   DType::kFloat32,
                             DType::kFloat64, DType::kFloat8E4M3, DType::kFloat8E5M2};

// Exponents either side of 0, so that no sum of 8 overflows.
int exponents_of(DType dtype) { return std::min(20, float_format(dtype).max_exponent - 4); }

// Finite values of either sign over many magnitudes.
Bytes random_values(DType dtype, uint64_t seed, size_t count) {
  Random random(seed);
  const FloatFormat format = float_format(dtype);
  const int bias = 1 - format.min_exponent, exponents = exponents_of(dtype);
  const size_t bytes = dtype_bytes(dtype);
  Bytes values(count * bytes);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t exponent =
        static_cast<uint64_t>(bias - exponents) + random.below(static_cast<uint64_t>(2 * exponents));
    const uint64_t fraction = random.below(uint64_t{1} << format.fraction_bits);
    const uint64_t bits = (random.below(2) << (8 * bytes - 1)) | (exponent << format.fraction_bits) | fraction;
    store_element(dtype, values.data() + i * bytes, bits);
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

// Each of the world - 1 additions rounds once, to the dtype at worst (small floats are folded in float32 and rounded
// where a partial sum is stored or sent); an average rounds once more. So |error| <= ((1 + roundoff)^world - 1) *
// sum|x|, and half the least value for each rounding of a denormal, itself rounded as often.
void expect_bounded(DType dtype, int world, Op op, const Bytes& output, size_t count) {
  const size_t bytes = dtype_bytes(dtype);
  const long double roundoff = std::ldexp(1.0L, -float_format(dtype).fraction_bits - 1);
  const long double relative = std::pow(1 + roundoff, world) - 1;
  const long double absolute = world * std::ldexp(1.0L, least_exponent(dtype) - 1);
  std::vector<Bytes> inputs;
  for (int r = 0; r < world; ++r) inputs.push_back(random_values(dtype, seed_of(r, dtype), count));
  for (size_t i = 0; i < count; ++i) {
    long double sum = 0, magnitude = 0;  // 64 bits of mantissa: float64 needs a finer reference than itself
    for (const Bytes& input : inputs) {
      const double x = load_value(dtype, input.data() + i * bytes);
      sum += x;
      magnitude += std::abs(x);
    }
    if (op == Op::kAverage) sum /= world, magnitude /= world;
    const long double got = load_value(dtype, output.data() + i * bytes);
    const long double bound = relative * magnitude + (1 + relative) * absolute;
    expect(std::abs(got - sum) <= bound,
           fmt::format("{} {} world {} element {}: {} instead of {}, bound {}", dtype_name(dtype), op_name(op), world,
                       i, static_cast<double>(got), static_cast<double>(sum), static_cast<double>(bound)));
  }
}

RankGroup group_of(int world) {
  RankGroup group{.world = world};
  group.config.slice_bytes = 4096;
  return group;
}

}  // namespace

TEST_CASE("sums and averages of random floats stay within their bound, with the same bits on all ranks") {
  constexpr size_t kCount = 5003;
  for (const int world : {2, 3, 5, 8}) {
    CAPTURE(world);
    CHECK(run_processes(group_of(world), [&](Communicator& group) {
            for (const DType dtype : kFloats) {
              const Bytes input = random_values(dtype, seed_of(group.rank(), dtype), kCount);
              for (const Op op : {Op::kSum, Op::kAverage}) {
                for (const Algorithm algorithm : available_algorithms(Collective::kAllReduce, group.topology())) {
                  const Bytes output = all_reduce(group, input, dtype, op, algorithm);
                  expect_same_everywhere(group, output, algorithm_name(algorithm));
                  if (group.rank() == 0) expect_bounded(dtype, world, op, output, kCount);
                }
              }
            }
          }) == "");
  }
}

TEST_CASE("fault 50: the same input gives the same bits 200 times, whatever the timing") {
  // Proves: the order of additions comes from the plan and not from who is first.
  constexpr size_t kCount = 3001;
  const RankBody body = [](Communicator& group) {
    for (const DType dtype : kFloats) {
      const Bytes input = random_values(dtype, seed_of(group.rank(), dtype), kCount);
      for (const Algorithm algorithm : available_algorithms(Collective::kAllReduce, group.topology())) {
        const Bytes first = all_reduce(group, input, dtype, Op::kSum, algorithm);
        for (int i = 1; i < 200; ++i) {
          const Bytes again = all_reduce(group, input, dtype, Op::kSum, algorithm);
          expect(again == first,
                 fmt::format("{} by {}: run {} has other bits", dtype_name(dtype), algorithm_name(algorithm), i));
        }
      }
    }
  };
  CHECK(run_processes(group_of(4), body) == "");
  CHECK(run_threads(group_of(3), body) == "");
}

TEST_CASE("fault 48: a NaN or two opposite infinities on any ranks are a NaN on every rank, and one infinity stays") {
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
