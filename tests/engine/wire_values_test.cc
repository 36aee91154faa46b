// Values of calls with a wire format, random shapes, worlds 1..8: how far a result may be off, and that an element that
// is not finite is named by every rank that gets it, wherever it is.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "rondo/communicator.h"
#include "tests/support/element.h"
#include "tests/support/random.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

using Floats = std::vector<float>;

constexpr WireFormat kCoded[] = {WireFormat::kFloat16,    WireFormat::kBfloat16, WireFormat::kFloat8E4M3,
                                 WireFormat::kFloat8E5M2, WireFormat::kInt8,     WireFormat::kInt4};
constexpr Collective kCalls[] = {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather};
constexpr Algorithm kAlgorithms[] = {Algorithm::kAuto, Algorithm::kRing, Algorithm::kDirect};  // of all of them
constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat32, DType::kBfloat16, DType::kFloat16};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// What all ranks know of one call, and so draw alike.
struct Shape {
  Collective collective = Collective::kAllReduce;
  size_t count = 0;  // elements of a block: of all for all_reduce
  DType dtype = DType::kFloat32;
  WireFormat format = WireFormat::kInt8;
  Op op = Op::kSum;
  bool stochastic = false;
  uint64_t seed = 0;
  Algorithm algorithm = Algorithm::kAuto;

  size_t input_count(int world) const {
    return collective == Collective::kReduceScatter ? count * static_cast<size_t>(world) : count;
  }
  size_t output_count(int world) const {
    return collective == Collective::kAllGather ? count * static_cast<size_t>(world) : count;
  }
  std::string text(int world) const {
    return fmt::format("{} of {} {} by {}, {} {}{}, world {}, seed {}", collective_name(collective), count,
                       dtype_name(dtype), algorithm_name(algorithm), wire_format_name(format), op_name(op),
                       stochastic ? " at random" : "", world, seed);
  }
};

Shape random_shape(Random& random) {
  Shape shape;
  shape.collective = kCalls[random.below(std::size(kCalls))];
  shape.count = random.chance(30) ? random.between(1, 200) : random.between(200, 10'000);
  shape.dtype = kDTypes[random.below(std::size(kDTypes))];
  shape.format = kCoded[random.below(std::size(kCoded))];
  shape.op = random.chance(50) ? Op::kSum : Op::kAverage;
  shape.stochastic = wire_format_rounds_at_random(shape.format) && random.chance(50);
  shape.seed = random.next();
  shape.algorithm = kAlgorithms[random.below(std::size(kAlgorithms))];
  return shape;
}

// Values of either sign, 2^-9 .. 2, and some zeros.
Floats values_of(const Shape& shape, int rank, int world) {
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

void run_call(Communicator& group, const Shape& shape, const Floats& input, Floats& output, float* residual) {
  CallOptions options;
  options.algorithm = shape.algorithm;
  options.wire.format = shape.format;
  options.wire.stochastic = shape.stochastic;
  options.wire.seed = shape.seed;
  options.wire.residual = residual;
  const size_t size = dtype_bytes(shape.dtype);
  std::vector<std::byte> from(input.size() * size), to(output.size() * size);
  for (size_t i = 0; i < input.size(); ++i) store_value(shape.dtype, from.data() + i * size, input[i]);
  const auto call = [&] {
    switch (shape.collective) {
      case Collective::kAllReduce:
        return group.all_reduce(from.data(), to.data(), shape.count, shape.dtype, shape.op, options);
      case Collective::kReduceScatter:
        return group.reduce_scatter(from.data(), to.data(), shape.count, shape.dtype, shape.op, options);
      default:
        return group.all_gather(from.data(), to.data(), shape.count, shape.dtype, options);
    }
  };
  call();
  for (size_t i = 0; i < output.size(); ++i) {
    output[i] = static_cast<float>(load_value(shape.dtype, to.data() + i * size));
  }
}

// docs/compression.md, "Wire formats". largest: of the block; here of all elements, which is never less.
double error_of_one(const Shape& shape, double value, double largest) {
  switch (shape.format) {
    case WireFormat::kFloat16:
      return std::max(std::ldexp(value, -11), std::ldexp(1.0, -25));
    case WireFormat::kBfloat16:
      return std::ldexp(value, -8);
    case WireFormat::kFloat8E4M3:
      return std::max(std::ldexp(value, -4), largest / 458'752);
    case WireFormat::kFloat8E5M2:
      return std::max(std::ldexp(value, -3), largest * std::ldexp(1.0, -17) / 57'344);
    case WireFormat::kInt8:
      return largest / 254 * (shape.stochastic ? 2 : 1);
    default:
      return largest / 14 * (shape.stochastic ? 2 : 1);
  }
}

// No partial sum is larger than the sum of magnitudes and of the errors so far, which grow by 1.15 a time at most (int4
// at random: 1 + 1 / 7).
void check_errors(Communicator& group, const Shape& shape) {
  const int world = group.size();
  const Floats input = values_of(shape, group.rank(), world);
  Floats output(shape.output_count(world));
  run_call(group, shape, input, output, nullptr);
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
    const double bound = encodings * (error_of_one(shape, sizes[i] * growth, largest * growth) + rounding) +
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
std::optional<size_t> place_of(const Shape& shape, const Spoilt& spoilt, int rank) {
  if (shape.collective != Collective::kReduceScatter) return spoilt.index;
  if (spoilt.index / shape.count != static_cast<size_t>(rank)) return std::nullopt;
  return spoilt.index % shape.count;
}

std::optional<Error> error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Exception& e) {
    return e.error();
  }
  return std::nullopt;
}

void check_not_finite(Communicator& group, const Shape& shape, const Spoilt& spoilt) {
  const int world = group.size();
  const std::string text = fmt::format("{}, {} at {} of rank {}{}", shape.text(world), spoilt.value, spoilt.index,
                                       spoilt.rank, spoilt.in_residual ? "'s residual" : "");
  Floats input = values_of(shape, group.rank(), world), residual(input.size()), output(shape.output_count(world));
  if (group.rank() == spoilt.rank) (spoilt.in_residual ? residual : input)[spoilt.index] = spoilt.value;
  const auto call = [&] { run_call(group, shape, input, output, residual.data()); };
  const std::optional<Error> error = error_of(call);
  const std::optional<size_t> place = place_of(shape, spoilt, group.rank());
  expect(error.has_value() == place.has_value(), text + ": refused by another rank, or not at all");
  if (error) {
    expect(error->code == ErrorCode::kNotFinite, text + ": " + error->message);
    const char* kind = std::isnan(spoilt.value) ? "is NaN" : "is infinite";
    const std::string words = fmt::format("element {} {} on rank {}", *place, kind, spoilt.rank);
    expect(error->message.find(words) != std::string::npos, text + ": " + error->message);
    expect(error->ranks == std::vector<int>{spoilt.rank}, text + ": other ranks");
  }
  // The next call is not troubled by it.
  for (const float left : residual) expect(std::isfinite(left), text + ": it stays in the residual");
  input = values_of(shape, group.rank(), world);
  expect(!error_of(call), text + ": the next call failed");
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
                             const Shape shape = random_shape(random);
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
