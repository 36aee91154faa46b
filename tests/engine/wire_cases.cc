#include "tests/engine/wire_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat32, DType::kBfloat16, DType::kFloat16};
constexpr Algorithm kReduceScatters[] = {Algorithm::kAuto, Algorithm::kRing, Algorithm::kDirect,
                                         Algorithm::kHalvingDoubling, Algorithm::kPat};
constexpr Algorithm kBroadcasts[] = {Algorithm::kAuto, Algorithm::kRing, Algorithm::kDirect, Algorithm::kTree,
                                     Algorithm::kDoubleTree};
constexpr Algorithm kAllGathers[] = {Algorithm::kAuto, Algorithm::kRing, Algorithm::kDirect};

CallOptions options_of(const WireShape& shape, float* residual) {
  CallOptions options;
  options.algorithm = shape.algorithm;
  options.wire.format = shape.format;
  options.wire.stochastic = shape.stochastic;
  options.wire.seed = shape.seed;
  options.wire.residual = residual;
  return options;
}

// Values of rank `rank`, from -1 to 1, rounded to the call's type.
Floats values_of(const WireShape& shape, int rank, size_t count) {
  Random random(shape.seed + static_cast<uint64_t>(rank));
  Floats values(count);
  for (float& value : values) value = static_cast<float>(random.below(2'000'001)) * 1e-6f - 1.0f;
  return Elements(shape.dtype, values).values(0, count);
}

std::vector<double> total(Communicator& group, const Floats& values) {
  std::vector<double> sum(values.begin(), values.end());
  group.all_reduce(sum.data(), sum.data(), sum.size(), DType::kFloat64);
  return sum;
}

void check_reduce_scatter(Communicator& group, const WireShape& shape) {
  const size_t all = shape.input_count(group.size()), own = shape.count * static_cast<size_t>(group.rank());
  const double unit = shape.op == Op::kAverage ? group.size() : 1;
  Floats residual(all);
  const Floats input = values_of(shape, group.rank(), all);
  const std::vector<double> given = total(group, input);
  Elements from(shape.dtype, input);
  const Floats target = run_wire_call(group, shape, from, residual.data());
  const std::vector<double> left = total(group, residual);
  for (size_t i = 0; i < shape.count; ++i) {
    const double gap = std::abs(given[own + i] - target[i] * unit - left[own + i]);
    expect(gap < shape.gap(group.size()) * unit,
           [&] { return fmt::format("{}: element {} is off by {}", shape.text(group.size()), i, gap); });
  }
}

void check_all_gather(Communicator& group, const WireShape& shape) {
  const std::string text = shape.text(group.size());
  const size_t own = shape.count * static_cast<size_t>(group.rank());
  const Floats input = values_of(shape, group.rank(), shape.count);
  Floats residual(shape.count);
  Elements from(shape.dtype, input);
  const Floats output = run_wire_call(group, shape, from, residual.data());
  expect_same_everywhere(group, std::as_bytes(std::span(output)), text);
  for (size_t i = 0; i < shape.count; ++i) {
    const float gap = input[i] - output[own + i] - residual[i];
    const bool exact = !shape.stochastic && shape.dtype == DType::kFloat32;
    expect(exact ? gap == 0 : std::abs(gap) < shape.gap(1), [&] { return fmt::format("{}: element {}", text, i); });
  }
}

}  // namespace

WireShape random_wire_shape(Random& random, Collective collective, std::span<const Algorithm> algorithms) {
  constexpr size_t kEdges[] = {0, 1, 127, 128, 129, 1000, 70'000};
  WireShape shape;
  shape.collective = collective;
  shape.count = random.chance(60) ? kEdges[random.below(std::size(kEdges))] : random.below(20'000);
  shape.dtype = kDTypes[random.below(std::size(kDTypes))];
  shape.format = kCodedFormats[random.below(std::size(kCodedFormats))];
  shape.op = random.chance(50) ? Op::kSum : Op::kAverage;
  shape.stochastic = wire_format_rounds_at_random(shape.format) && random.chance(50);
  shape.in_place = random.chance(50);
  shape.seed = random.next();
  shape.algorithm = algorithms[random.below(algorithms.size())];
  return shape;
}

Floats run_wire_call(Communicator& group, const WireShape& shape, Elements& from, float* residual) {
  const CallOptions options = options_of(shape, residual);
  const size_t in = shape.input_count(group.size()), out = shape.output_count(group.size());
  const size_t own = shape.count * static_cast<size_t>(group.rank());
  Elements to(shape.dtype, Floats(out));
  switch (shape.collective) {
    case Collective::kAllReduce: {
      std::byte* const target = shape.in_place ? from.at(0) : to.at(0);
      group.all_reduce(from.at(0), target, in, shape.dtype, shape.op, options);
      return (shape.in_place ? from : to).values(0, out);
    }
    case Collective::kReduceScatter: {
      std::byte* const target = shape.in_place ? from.at(own) : to.at(0);
      group.reduce_scatter(from.at(0), target, out, shape.dtype, shape.op, options);
      return shape.in_place ? from.values(own, out) : to.values(0, out);
    }
    default: {
      std::copy_n(from.at(0), in * dtype_bytes(shape.dtype), to.at(own));
      group.all_gather(shape.in_place ? to.at(own) : from.at(0), to.at(0), in, shape.dtype, options);
      return to.values(0, out);
    }
  }
}

std::vector<std::byte> bits_of(const WireShape& shape, int rank) {
  Random random(shape.seed + static_cast<uint64_t>(rank));
  std::vector<std::byte> bits(shape.count * dtype_bytes(shape.dtype));
  const uint32_t alike = random.chance(70) ? 0x3c000000 : 0;
  for (size_t i = 0; i < shape.count; ++i) {
    const uint32_t word = (static_cast<uint32_t>(random.next()) & (alike != 0 ? 0x83ffffff : 0xffffffff)) | alike;
    const size_t bytes = dtype_bytes(shape.dtype);
    std::memcpy(&bits[i * bytes], reinterpret_cast<const std::byte*>(&word) + sizeof word - bytes, bytes);
  }
  return bits;
}

void check_coded_all_reduce(Communicator& group, const WireShape& shape) {
  const std::string text = shape.text(group.size());
  const double unit = shape.op == Op::kAverage ? group.size() : 1;
  Floats residual(shape.count);
  const Floats input = values_of(shape, group.rank(), shape.count);
  std::vector<double> given = total(group, input), arrived(shape.count);
  for (int call = 0; call < 2; ++call) {
    Elements from(shape.dtype, input);
    const Floats output = run_wire_call(group, shape, from, residual.data());
    expect_same_everywhere(group, std::as_bytes(std::span(output)), text);
    for (size_t i = 0; i < shape.count; ++i) arrived[i] += output[i] * unit;
  }
  const std::vector<double> left = total(group, residual);
  for (size_t i = 0; i < shape.count; ++i) {
    const double gap = std::abs(2 * given[i] - arrived[i] - left[i]);
    expect(gap < 2 * shape.gap(group.size()) * unit,
           [&] { return fmt::format("{}: element {} is off by {}", text, i, gap); });
  }
}

void check_packed(Communicator& group, WireShape shape, Algorithm broadcast) {
  shape.collective = Collective::kAllGather;
  shape.format = WireFormat::kPacked;
  shape.stochastic = false;
  if (shape.dtype == DType::kFloat16) shape.dtype = DType::kBfloat16;
  const int root = static_cast<int>(shape.seed % static_cast<uint64_t>(group.size()));
  const std::vector<std::byte> own = bits_of(shape, group.rank()), given = bits_of(shape, root);
  std::vector<std::byte> all, array = own;
  for (int r = 0; r < group.size(); ++r) {
    const std::vector<std::byte> bits = bits_of(shape, r);
    all.insert(all.end(), bits.begin(), bits.end());
  }
  std::vector<std::byte> output(all.size());
  std::byte* const part = output.data() + own.size() * static_cast<size_t>(group.rank());
  if (shape.in_place) std::copy(own.begin(), own.end(), part);
  group.all_gather(shape.in_place ? part : own.data(), output.data(), shape.count, shape.dtype,
                   options_of(shape, nullptr));
  expect(output == all, shape.text(group.size()));
  shape.algorithm = broadcast;
  group.broadcast(array.data(), shape.count, shape.dtype, root, options_of(shape, nullptr));
  shape.collective = Collective::kBroadcast;
  expect(array == given, shape.text(group.size()));
}

void check_random_wire_calls(Communicator& group, uint64_t seed, int calls) {
  Random random(seed);
  for (int i = 0; i < calls; ++i) {
    check_coded_all_reduce(group, random_wire_shape(random, Collective::kAllReduce, kCodedAllReduces));
    check_reduce_scatter(group, random_wire_shape(random, Collective::kReduceScatter, kReduceScatters));
    check_all_gather(group, random_wire_shape(random, Collective::kAllGather, kAllGathers));
    const WireShape shape = random_wire_shape(random, Collective::kAllGather, kAllGathers);
    check_packed(group, shape, kBroadcasts[random.below(std::size(kBroadcasts))]);
  }
}

}  // namespace rondo::testing
