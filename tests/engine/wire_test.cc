// Calls with a wire format, random shapes, worlds 1..8: the same bits on all ranks; what arrives and what the residuals
// keep add up to what was given; what is not finite is named.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/pack.h"
#include "ring/engine/run/wire_move.h"
#include "rondo/communicator.h"
#include "tests/support/element.h"
#include "tests/support/random.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

using Floats = std::vector<float>;

constexpr WireFormat kCoded[] = {WireFormat::kFloat16,    WireFormat::kBfloat16, WireFormat::kFloat8E4M3,
                                 WireFormat::kFloat8E5M2, WireFormat::kInt8,     WireFormat::kInt4};
constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat32, DType::kBfloat16, DType::kFloat16};
constexpr Algorithm kAllReduces[] = {Algorithm::kAuto,       Algorithm::kRing, Algorithm::kTree,
                                     Algorithm::kDoubleTree, Algorithm::kStar, Algorithm::kHierarchical};
constexpr Algorithm kReduceScatters[] = {Algorithm::kAuto, Algorithm::kRing, Algorithm::kDirect,
                                         Algorithm::kHalvingDoubling, Algorithm::kPat};
constexpr Algorithm kBroadcasts[] = {Algorithm::kAuto, Algorithm::kRing, Algorithm::kDirect, Algorithm::kTree,
                                     Algorithm::kDoubleTree};
constexpr Algorithm kAllGathers[] = {Algorithm::kAuto, Algorithm::kRing, Algorithm::kDirect};

// What all ranks know of one call, and so draw alike.
struct Shape {
  size_t count = 0;
  DType dtype = DType::kFloat32;
  WireFormat format = WireFormat::kInt8;
  Op op = Op::kSum;
  bool stochastic = false, in_place = false;
  uint64_t seed = 0;
  Algorithm algorithm = Algorithm::kAuto;

  std::string text(const char* call, int world) const {
    return fmt::format("{} of {} {} by {}, {} {}{}, world {}, seed {}", call, count, dtype_name(dtype),
                       algorithm_name(algorithm), wire_format_name(format), op_name(op), in_place ? " in place" : "",
                       world, seed);
  }
  // Of what arrived and what is left: results of 16 bits, and partial sums, are rounded, each by half a unit.
  double gap(int world) const {
    const double rounding = std::ldexp(1.0, -float_format(dtype).fraction_bits - 1);
    return 1e-5 * world + (dtype == DType::kFloat32 ? 0 : 2 * rounding * world * world);
  }
};

Shape random_shape(Random& random, std::span<const Algorithm> algorithms) {
  constexpr size_t kEdges[] = {0, 1, 127, 128, 129, 1000, 70'000};
  Shape shape;
  shape.count = random.chance(60) ? kEdges[random.below(std::size(kEdges))] : random.below(20'000);
  shape.dtype = kDTypes[random.below(std::size(kDTypes))];
  shape.format = kCoded[random.below(std::size(kCoded))];
  shape.op = random.chance(50) ? Op::kSum : Op::kAverage;
  shape.stochastic = wire_format_rounds_at_random(shape.format) && random.chance(50);
  shape.in_place = random.chance(50);
  shape.seed = random.next();
  shape.algorithm = algorithms[random.below(algorithms.size())];
  return shape;
}

CallOptions options_of(const Shape& shape, float* residual) {
  CallOptions options;
  options.algorithm = shape.algorithm;
  options.wire.format = shape.format;
  options.wire.stochastic = shape.stochastic;
  options.wire.seed = shape.seed;
  options.wire.residual = residual;
  return options;
}

// Elements of a type in memory, and their values.
class Elements {
 public:
  Elements(DType dtype, const Floats& values) : dtype_(dtype), bytes_(values.size() * dtype_bytes(dtype)) {
    for (size_t i = 0; i < values.size(); ++i) store_value(dtype, at(i), values[i]);
  }
  std::byte* at(size_t i) { return bytes_.data() + i * dtype_bytes(dtype_); }
  Floats values(size_t first, size_t count) {
    Floats values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(load_value(dtype_, at(first + i)));
    return values;
  }

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
};

// Of rank `rank`: about 1 in size, and of the call's type.
Floats values_of(const Shape& shape, int rank, size_t count) {
  Random random(shape.seed + static_cast<uint64_t>(rank));
  Floats values(count);
  for (float& value : values) value = static_cast<float>(random.below(2'000'001)) * 1e-6f - 1.0f;
  return Elements(shape.dtype, values).values(0, count);
}

void expect_same_bits(Communicator& group, const Floats& values, const std::string& text) {
  Floats all(values.size() * static_cast<size_t>(group.size()));
  group.all_gather(values.data(), all.data(), values.size(), DType::kFloat32);
  for (int r = 0; r < group.size(); ++r) {
    const float* theirs = all.data() + static_cast<size_t>(r) * values.size();
    expect(values.empty() || std::memcmp(theirs, values.data(), values.size() * sizeof(float)) == 0,
           fmt::format("{}: rank {} has other bits than rank {}", text, r, group.rank()));
  }
}

std::vector<double> total(Communicator& group, const Floats& values) {
  std::vector<double> sum(values.begin(), values.end());
  group.all_reduce(sum.data(), sum.data(), sum.size(), DType::kFloat64);
  return sum;
}

// Twice with one residual: what was given = what arrived + what is left.
void check_all_reduce(Communicator& group, const Shape& shape) {
  const std::string text = shape.text("all_reduce", group.size());
  const double unit = shape.op == Op::kAverage ? group.size() : 1;
  Floats residual(shape.count);
  const Floats input = values_of(shape, group.rank(), shape.count);
  std::vector<double> given = total(group, input), arrived(shape.count);
  for (int call = 0; call < 2; ++call) {
    Elements from(shape.dtype, input), to = from;
    group.all_reduce(shape.in_place ? to.at(0) : from.at(0), to.at(0), shape.count, shape.dtype, shape.op,
                     options_of(shape, residual.data()));
    const Floats output = to.values(0, shape.count);
    expect_same_bits(group, output, text);
    for (size_t i = 0; i < shape.count; ++i) arrived[i] += output[i] * unit;
  }
  const std::vector<double> left = total(group, residual);
  for (size_t i = 0; i < shape.count; ++i) {
    const double gap = std::abs(2 * given[i] - arrived[i] - left[i]);
    expect(gap < 2 * shape.gap(group.size()) * unit,
           [&] { return fmt::format("{}: element {} is off by {}", text, i, gap); });
  }
}

void check_reduce_scatter(Communicator& group, const Shape& shape) {
  const std::string text = shape.text("reduce_scatter", group.size());
  const size_t all = shape.count * static_cast<size_t>(group.size()),
               own = shape.count * static_cast<size_t>(group.rank());
  const double unit = shape.op == Op::kAverage ? group.size() : 1;
  Floats residual(all);
  const Floats input = values_of(shape, group.rank(), all);
  const std::vector<double> given = total(group, input);
  Elements from(shape.dtype, input), to(shape.dtype, Floats(shape.count));
  group.reduce_scatter(from.at(0), shape.in_place ? from.at(own) : to.at(0), shape.count, shape.dtype, shape.op,
                       options_of(shape, residual.data()));
  const Floats target = shape.in_place ? from.values(own, shape.count) : to.values(0, shape.count);
  const std::vector<double> left = total(group, residual);
  for (size_t i = 0; i < shape.count; ++i) {
    const double gap = std::abs(given[own + i] - target[i] * unit - left[own + i]);
    expect(gap < shape.gap(group.size()) * unit,
           [&] { return fmt::format("{}: element {} is off by {}", text, i, gap); });
  }
}

void check_all_gather(Communicator& group, const Shape& shape) {
  const std::string text = shape.text("all_gather", group.size());
  const size_t own = shape.count * static_cast<size_t>(group.rank());
  const Floats input = values_of(shape, group.rank(), shape.count);
  const size_t all = shape.count * static_cast<size_t>(group.size());
  Floats residual(shape.count), before(all);
  std::copy(input.begin(), input.end(), before.begin() + static_cast<ptrdiff_t>(own));
  Elements from(shape.dtype, input), to(shape.dtype, before);
  group.all_gather(shape.in_place ? to.at(own) : from.at(0), to.at(0), shape.count, shape.dtype,
                   options_of(shape, residual.data()));
  const Floats output = to.values(0, all);
  expect_same_bits(group, output, text);
  for (size_t i = 0; i < shape.count; ++i) {
    const float gap = input[i] - output[own + i] - residual[i];
    const bool exact = !shape.stochastic && shape.dtype == DType::kFloat32;
    expect(exact ? gap == 0 : std::abs(gap) < shape.gap(1), [&] { return fmt::format("{}: element {}", text, i); });
  }
}

// Bits of any kind; of a block some are alike.
std::vector<std::byte> bits_of(const Shape& shape, int rank) {
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

void check_packed(Communicator& group, Shape shape, Algorithm broadcast) {
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
  expect(output == all, shape.text("all_gather", group.size()));
  shape.algorithm = broadcast;
  group.broadcast(array.data(), shape.count, shape.dtype, root, options_of(shape, nullptr));
  expect(array == given, shape.text("broadcast", group.size()));
}

void check_random_calls(Communicator& group, uint64_t seed, int calls) {
  Random random(seed);
  for (int i = 0; i < calls; ++i) {
    check_all_reduce(group, random_shape(random, kAllReduces));
    check_reduce_scatter(group, random_shape(random, kReduceScatters));
    check_all_gather(group, random_shape(random, kAllGathers));
    const Shape shape = random_shape(random, kAllGathers);
    check_packed(group, shape, kBroadcasts[random.below(std::size(kBroadcasts))]);
  }
}

ErrorCode code_of(const std::function<void()>& call, std::string* message = nullptr,
                  std::vector<int>* ranks = nullptr) {
  try {
    call();
  } catch (const Exception& e) {
    if (message != nullptr) *message = e.what();
    if (ranks != nullptr) *ranks = e.error().ranks;
    return e.code();
  }
  return ErrorCode::kOk;
}

void expect_not_finite(Communicator& group, WireFormat format, float bad, int culprit, size_t index,
                       const char* words) {
  Floats values(3000, 1.0f);
  if (group.rank() == culprit) values[index] = bad;
  CallOptions options;
  options.wire.format = format;
  std::string message;
  std::vector<int> ranks;
  const auto call = [&] {
    group.all_reduce(values.data(), values.data(), values.size(), DType::kFloat32, Op::kSum, options);
  };
  const std::string what = fmt::format("{} on rank {} of {}", wire_format_name(format), group.rank(), group.size());
  expect(code_of(call, &message, &ranks) == ErrorCode::kNotFinite, what + ": no kNotFinite");
  expect(message.find(fmt::format("element {} {} on rank {}", index, words, culprit)) != std::string::npos, message);
  expect(ranks == std::vector<int>{culprit}, what + ": other ranks");
  expect(!std::isfinite(values[index]), what + ": the element is finite");
  // The communicator goes on.
  options.wire.allow_not_finite = true;
  expect(code_of(call) == ErrorCode::kOk, what + ": refused though allowed");
}

// Contributions that float16 holds and a sum that it does not: by the format it travels in, and in memory.
void expect_sum_too_large(Communicator& group) {
  for (const WireFormat format : {WireFormat::kBfloat16, WireFormat::kInt8}) {
    Floats values(1000, 1.0f);
    values[77] = 60000.0f;
    Elements elements(DType::kFloat16, values);
    CallOptions options;
    options.wire.format = format;
    std::string message;
    const auto call = [&] {
      group.all_reduce(elements.at(0), elements.at(0), values.size(), DType::kFloat16, Op::kSum, options);
    };
    const std::string what = fmt::format("float16 by {}, rank {}", wire_format_name(format), group.rank());
    expect(code_of(call, &message) == ErrorCode::kNotFinite, what + ": no kNotFinite");
    expect(message.find("element 77 is too large") != std::string::npos, message);
  }
}

}  // namespace

TEST_CASE("wire formats: random calls of threads, worlds 1..8") {
  for (int world = 1; world <= 8; ++world) {
    const RankGroup group{world};
    CHECK_EQ(
        run_threads(group, [&](Communicator& c) { check_random_calls(c, 100 + static_cast<uint64_t>(world), 12); }),
        "");
  }
}

TEST_CASE("wire formats: random calls of processes, over shared memory and over TCP") {
  for (const char* transport : {"auto", "tcp"}) {
    for (const int world : {2, 3}) {
      RankGroup group{world};
      group.config.transport = transport;
      CHECK_EQ(run_processes(group, [](Communicator& c) { check_random_calls(c, 7, 10); }), "");
    }
  }
}

TEST_CASE("wire formats: slices of every size carry a large call, on several lanes") {
  for (const uint32_t slice_bytes : {4096u, 256u * 1024}) {
    RankGroup group{3};
    group.config.lanes = 2;
    group.config.slice_bytes = slice_bytes;
    CHECK_EQ(run_threads(group,
                         [](Communicator& c) {
                           Random random(3);
                           for (const WireFormat format : kCoded) {
                             Shape shape = random_shape(random, kAllReduces);
                             shape.count = 300'001;
                             shape.format = format;
                             shape.stochastic = false;
                             check_all_reduce(c, shape);
                             shape.algorithm = Algorithm::kAuto;
                             check_packed(c, shape, Algorithm::kRing);
                           }
                         }),
             "");
  }
}

TEST_CASE("wire formats: NaN, infinity and overflow are named on every rank") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const int world : {2, 3, 5}) {
    const RankGroup group{world};
    CHECK_EQ(run_threads(
                 group,
                 [&](Communicator& c) {
                   for (const WireFormat format : kCoded) {
                     for (const size_t index : {0u, 777u, 2999u}) {
                       const int culprit = static_cast<int>(index) % world;
                       expect_not_finite(c, format, std::numeric_limits<float>::quiet_NaN(), culprit, index, "is NaN");
                       expect_not_finite(c, format, kInfinity, culprit, index, "is infinite");
                     }
                   }
                   expect_not_finite(c, WireFormat::kFloat16, 7e4f, 1, 1234, "is too large for the wire format");
                   expect_sum_too_large(c);
                 }),
             "");
  }
}

TEST_CASE("wire formats: what cannot be is refused before anything happens") {
  const RankGroup group{2};
  const auto body = [](Communicator& c) {
    Floats x(64, 1.0f), y(64);
    CallOptions options;
    const auto refused = [&](DType dtype, Op op) {
      return code_of([&] { c.all_reduce(x.data(), y.data(), 16, dtype, op, options); }) == ErrorCode::kInvalid;
    };
    options.wire.residual = x.data();
    expect(refused(DType::kFloat32, Op::kSum), "a residual without a format");
    options.wire.format = WireFormat::kInt8;
    expect(refused(DType::kFloat32, Op::kSum), "a residual that is the input");
    options.wire.residual = nullptr;
    expect(refused(DType::kFloat64, Op::kSum), "float64");
    expect(refused(DType::kFloat32, Op::kMax), "max");
    options.algorithm = Algorithm::kDirect;
    expect(refused(DType::kFloat32, Op::kSum), "direct");
    options.algorithm = Algorithm::kAuto;
    options.wire.format = WireFormat::kFloat16;
    options.wire.stochastic = true;
    expect(refused(DType::kFloat32, Op::kSum), "float16 at random");
    options.wire = {};
    options.wire.format = static_cast<WireFormat>(99);
    expect(refused(DType::kFloat32, Op::kSum), "format 99");
    options.wire.format = WireFormat::kInt8;
    expect(code_of([&] { c.broadcast(x.data(), 16, DType::kFloat32, 0, options); }) == ErrorCode::kInvalid,
           "broadcast");
    options.wire.format = WireFormat::kPacked;
    const auto packed = [&](DType dtype) {
      return code_of([&] { c.broadcast(x.data(), 16, dtype, 0, options); }) == ErrorCode::kInvalid;
    };
    expect(refused(DType::kFloat32, Op::kSum), "packed all_reduce");
    expect(packed(DType::kFloat16) && packed(DType::kInt32), "packed float16, int32");
    options.wire.residual = y.data();
    expect(packed(DType::kFloat32), "a residual of packed");
    options.wire = {.format = WireFormat::kInt8};
    const TensorRef tensor{x.data(), x.data(), 16, DType::kFloat32};
    expect(code_of([&] { c.all_reduce_many(std::span(&tensor, 1), Op::kSum, options); }) == ErrorCode::kInvalid,
           "a list");
    expect(!refused(DType::kFloat32, Op::kSum), "the communicator goes on");
  };
  CHECK_EQ(run_threads(group, body), "");
}

TEST_CASE("packed slices go on as they came, and are stored; a damaged one goes nowhere") {
  constexpr uint64_t kCount = 600;
  Shape shape;
  shape.count = kCount;
  shape.dtype = DType::kBfloat16;
  std::vector<std::byte> bits = bits_of(shape, 0);
  for (size_t i = 1; i < bits.size(); i += 2) bits[i] = std::byte{0x3c};  // exponents that are alike
  const std::vector<std::byte> nothing(packed_bytes(2, kCount));
  std::vector<std::byte> sent = nothing, other = nothing, stored(bits.size());
  std::byte* slots[] = {sent.data(), other.data()};
  std::byte* memory[] = {stored.data()};
  WireSource source;
  source.data = bits.data();
  WireMove move;
  move.sources = {&source, 1};
  move.memory = memory;
  move.slots = slots;
  move.count = kCount;
  const auto bytes = move_packed(shape.dtype, move);
  REQUIRE((bytes && *bytes < bits.size()));
  CHECK(stored == bits);
  CHECK(sent == other);
  CHECK(std::all_of(sent.begin() + *bytes, sent.end(), [](std::byte b) { return b == std::byte{0}; }));

  source.data = sent.data();
  source.bytes = *bytes;
  source.coded = true;
  move.slots = std::span(slots).subspan(1);
  stored.assign(bits.size(), std::byte{0});
  other = nothing;
  CHECK_EQ(move_packed(shape.dtype, move), bytes);
  CHECK(stored == bits);
  CHECK(sent == other);

  source.bytes -= 1;
  other = nothing;
  CHECK_FALSE(move_packed(shape.dtype, move));
  CHECK(other == nothing);
}

TEST_CASE("wire formats: ranks that ask for different ones are told so") {
  const RankGroup group{2};
  const auto body = [](Communicator& c) {
    Floats x(1000, 1.0f);
    CallOptions options;
    options.wire.format = c.rank() == 0 ? WireFormat::kInt8 : WireFormat::kBfloat16;
    expect(code_of([&] { c.all_reduce(x.data(), x.data(), x.size(), DType::kFloat32, Op::kSum, options); }) ==
               ErrorCode::kMismatch,
           "no mismatch");
  };
  CHECK_EQ(run_threads(group, body), "");
}

}  // namespace rondo::testing
