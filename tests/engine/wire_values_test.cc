// Values of calls with a wire format, random shapes, worlds 1..8: how far a result may be off, and that an element that
// is not finite is named by every rank that gets it, wherever it is.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "rondo/communicator.h"
#include "tests/engine/wire_cases.h"
#include "tests/support/errors.h"
#include "tests/support/random.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

constexpr Collective kCalls[] = {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather};
constexpr Algorithm kAlgorithms[] = {Algorithm::kAuto, Algorithm::kRing, Algorithm::kDirect};  // of all of them
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

WireShape random_shape(Random& random) {
  WireShape shape = random_wire_shape(random, kCalls[random.below(std::size(kCalls))], kAlgorithms);
  shape.count = std::max<size_t>(1, shape.count);
  return shape;
}

// Values of either sign, 2^-9 .. 2, and some zeros.
Floats values_of(const WireShape& shape, int rank, int world) {
  Random random(shape.seed + static_cast<uint64_t>(rank));
  Floats values(shape.input_count(world));
  for (float& value : values) {
    const double fraction = 1 + static_cast<double>(random.below(1 << 23)) / (1 << 23);
    value = static_cast<float>(std::ldexp(fraction, -static_cast<int>(random.below(10))));
    if (random.chance(50)) value = -value;
    if (random.chance(3)) value = 0;
    value = static_cast<float>(decode_float(shape.dtype, encode_float(shape.dtype, value)));
  }
  return values;
}

Floats run_call(Communicator& group, const WireShape& shape, const Floats& input, float* residual) {
  Elements from(shape.dtype, input);
  return run_wire_call(group, shape, from, residual);
}

// No partial sum is larger than the sum of magnitudes and of the errors so far, which grow by 1.15 a time at most (int4
// at random: 1 + 1 / 7).
void check_errors(Communicator& group, const WireShape& shape) {
  const int world = group.size();
  const Floats input = values_of(shape, group.rank(), world);
  const Floats output = run_call(group, shape, input, nullptr);
  const bool gathers = shape.collective == Collective::kAllGather;
  std::vector<double> exact(shape.output_count(world)), sizes(exact.size());
  for (int r = 0; r < world; ++r) {
    const Floats theirs = values_of(shape, r, world);
    for (size_t i = 0; i < theirs.size(); ++i) {
      const size_t own = shape.count * static_cast<size_t>(group.rank());
      if (shape.collective == Collective::kReduceScatter && i / shape.count != static_cast<size_t>(group.rank())) {
        continue;
      }
      const size_t at = gathers ? static_cast<size_t>(r) * shape.count + i
                                : (shape.collective == Collective::kReduceScatter ? i - own : i);
      exact[at] += theirs[i];
      sizes[at] += std::abs(double{theirs[i]});
    }
  }
  const double largest = *std::max_element(sizes.begin(), sizes.end());
  const double unit = shape.op == Op::kAverage && !gathers ? world : 1;
  const int encodings = world == 1 ? 0 : gathers ? 1 : world;
  const double growth = std::pow(1.15, std::max(encodings - 1, 0));
  for (size_t i = 0; i < exact.size(); ++i) {
    // Results of 16 bits are rounded, and partial sums where a plan keeps them in memory.
    const double rounding = std::ldexp(sizes[i] * growth, -float_format(shape.dtype).fraction_bits - 1);
    const double bound =
        encodings * (wire_error(shape.format, sizes[i] * growth, largest * growth, shape.stochastic) + rounding) +
        1e-6 * sizes[i] + std::ldexp(1.0, least_exponent(shape.dtype));
    const double error = std::abs(exact[i] - output[i] * unit);
    expect(error <= bound, [&] {
      return fmt::format("{}: element {} is off by {}, more than {}", shape.text(world), i, error, bound);
    });
  }
}

// One element of one rank, or of its residual, is not finite.
struct Spoilt {
  int rank = 0;
  size_t index = 0;  // of the rank's input
  float value = kNan;
  bool in_residual = false;
};

// Where `spoilt` is in this rank's output, counted as the error does; nullopt: this rank does not get it.
std::optional<size_t> place_of(const WireShape& shape, const Spoilt& spoilt, int rank) {
  if (shape.collective != Collective::kReduceScatter) return spoilt.index;
  if (spoilt.index / shape.count != static_cast<size_t>(rank)) return std::nullopt;
  return spoilt.index % shape.count;
}

void check_not_finite(Communicator& group, const WireShape& shape, const Spoilt& spoilt) {
  const int world = group.size();
  const std::string text = fmt::format("{}, {} at {} of rank {}{}", shape.text(world), spoilt.value, spoilt.index,
                                       spoilt.rank, spoilt.in_residual ? "'s residual" : "");
  Floats input = values_of(shape, group.rank(), world), residual(input.size());
  if (group.rank() == spoilt.rank) (spoilt.in_residual ? residual : input)[spoilt.index] = spoilt.value;
  const auto call = [&] { run_call(group, shape, input, residual.data()); };
  const Error error = error_of(call);
  const std::optional<size_t> place = place_of(shape, spoilt, group.rank());
  expect(error.ok() != place.has_value(), text + ": refused by another rank, or not at all");
  if (place) {
    const char* kind = std::isnan(spoilt.value) ? "is NaN" : "is infinite";
    const std::string words = fmt::format("element {} {} on rank {}", *place, kind, spoilt.rank);
    expect(error.code == ErrorCode::kNotFinite && error.message.find(words) != std::string::npos,
           text + ": " + error.message);
    expect(error.ranks == std::vector<int>{spoilt.rank}, text + ": other ranks");
  }
  // The next call is not troubled by it.
  for (const float left : residual) expect(std::isfinite(left), text + ": it stays in the residual");
  input = values_of(shape, group.rank(), world);
  expect(error_of(call).ok(), text + ": the next call failed");
}

}  // namespace

TEST_CASE("wire formats: results are as near as docs/compression.md says, worlds 1..8") {
  for (int world = 1; world <= 8; ++world) {
    CHECK_EQ(run_threads(RankGroup{world},
                         [&](Communicator& group) {
                           Random random(static_cast<uint64_t>(world) + 500);
                           for (int i = 0; i < 30; ++i) check_errors(group, random_shape(random));
                         }),
             "");
  }
}

TEST_CASE("wire formats: what is not finite at random places is named, worlds 1..8") {
  constexpr float kBad[] = {kNan, kInfinity, -kInfinity};
  for (int world = 1; world <= 8; ++world) {
    CHECK_EQ(run_threads(RankGroup{world},
                         [&](Communicator& group) {
                           Random random(static_cast<uint64_t>(world) + 900);
                           for (int i = 0; i < 30; ++i) {
                             const WireShape shape = random_shape(random);
                             Spoilt spoilt;
                             spoilt.rank = static_cast<int>(random.below(static_cast<uint64_t>(world)));
                             spoilt.index = random.below(shape.input_count(world));
                             spoilt.value = kBad[random.below(std::size(kBad))];
                             spoilt.in_residual = random.chance(40);
                             check_not_finite(group, shape, spoilt);
                           }
                         }),
             "");
  }
}

}  // namespace rondo::testing
