// Calls with a wire format, random shapes, worlds 1..8: the same bits on all ranks; what arrives and what the residuals
// keep add up to what was given; what is not finite is named.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/pack.h"
#include "ring/engine/run/wire_move.h"
#include "rondo/communicator.h"
#include "tests/engine/wire_cases.h"
#include "tests/support/errors.h"
#include "tests/support/random.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

void expect_not_finite(Communicator& group, WireFormat format, float bad, int culprit, size_t index,
                       const char* words) {
  Floats values(3000, 1.0f);
  if (group.rank() == culprit) values[index] = bad;
  CallOptions options;
  options.wire.format = format;
  const auto call = [&] {
    group.all_reduce(values.data(), values.data(), values.size(), DType::kFloat32, Op::kSum, options);
  };
  const std::string what = fmt::format("{} on rank {} of {}", wire_format_name(format), group.rank(), group.size());
  const Error error = error_of(call);
  expect_error(error, ErrorCode::kNotFinite, fmt::format("element {} {} on rank {}", index, words, culprit));
  expect(error.ranks == std::vector<int>{culprit}, what + ": other ranks");
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
    const auto call = [&] {
      group.all_reduce(elements.at(0), elements.at(0), values.size(), DType::kFloat16, Op::kSum, options);
    };
    expect_error(call, ErrorCode::kNotFinite, "element 77 is too large");
  }
}

}  // namespace

TEST_CASE("wire formats: random calls of threads, worlds 1..8") {
  for (int world = 1; world <= 8; ++world) {
    const RankGroup group{world};
    CHECK_EQ(run_threads(group,
                         [&](Communicator& c) { check_random_wire_calls(c, 100 + static_cast<uint64_t>(world), 12); }),
             "");
  }
}

TEST_CASE("wire formats: random calls of processes, over shared memory and over TCP") {
  for (const char* transport : {"auto", "tcp"}) {
    for (const int world : {2, 3}) {
      CHECK_EQ(run_processes(ranks_over(transport, world), [](Communicator& c) { check_random_wire_calls(c, 7, 10); }),
               "");
    }
  }
}

TEST_CASE("wire formats: slices of every size carry a large call") {
  for (const uint32_t slice_bytes : {4096u, 256u * 1024}) {
    RankGroup group{3};
    group.config.slice_bytes = slice_bytes;
    CHECK_EQ(run_threads(group,
                         [](Communicator& c) {
                           Random random(3);
                           for (const WireFormat format : kCodedFormats) {
                             WireShape shape = random_wire_shape(random, Collective::kAllReduce, kCodedAllReduces);
                             shape.count = 300'001;
                             shape.format = format;
                             shape.stochastic = false;
                             check_coded_all_reduce(c, shape);
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
                   for (const WireFormat format : kCodedFormats) {
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
    options.algorithm = Algorithm::kRecursiveDoubling;
    expect(refused(DType::kFloat32, Op::kSum), "doubling");
    options.algorithm = Algorithm::kAuto;
    options.wire.format = WireFormat::kFloat16;
    options.wire.stochastic = true;
    expect(refused(DType::kFloat32, Op::kSum), "float16 at random");
    options.wire = {.format = WireFormat::kInt8};
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
  WireShape shape;
  shape.count = kCount;
  shape.dtype = DType::kBfloat16;
  std::vector<std::byte> bits = bits_of(shape, 0);
  for (size_t i = 1; i < bits.size(); i += 2) bits[i] = std::byte{0x3c};  // exponents that are alike
  const std::vector<std::byte> nothing(packed_bytes(2, kCount));
  std::vector<std::byte> sent = nothing, other = nothing, stored(bits.size());
  std::byte* slots[] = {sent.data(), other.data()};
  const WireTarget memory[] = {{stored.data()}};
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

TEST_CASE("wire formats: a slice's note with a number, a rank or a kind that cannot be counts as none") {
  constexpr uint64_t kCount = 300, kBad = 200;
  constexpr int kWorld = 3;
  const size_t bytes = wire_slice_bytes(WireFormat::kInt8, sizeof(float), kCount), at = bytes - 8;
  WireFold wire;
  wire.bind({.format = WireFormat::kInt8}, DType::kFloat32, {.world = kWorld}, 1, 1);
  Floats values(kCount, 1.0f), stored(kCount);
  values[kBad] = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::byte> slice(bytes), next(bytes);
  std::byte* slots[] = {slice.data()};
  const WireTarget memory[] = {{reinterpret_cast<std::byte*>(stored.data())}};
  WireSource source;
  source.data = reinterpret_cast<const std::byte*>(values.data());
  WireMove move;
  move.sources = {&source, 1};
  move.slots = slots;
  move.count = kCount;
  CHECK(wire.run(move).rank == 1);

  // The note that a receiver reads where `size` bytes of the slice's note, from byte `field` on, hold `value`: first by
  // a rank that passes the slice on, then by one that folds it.
  source.data = slice.data();
  source.bytes = static_cast<uint32_t>(bytes);
  source.coded = true;
  slots[0] = next.data();
  const std::vector<std::byte> honest = slice;
  const auto note_with = [&](size_t field, size_t size, uint32_t value) {
    slice = honest;
    source.data = slice.data();
    std::memcpy(slice.data() + at + field, &value, size);
    move.memory = memory;
    move.passes_on = true;
    const WireNote passed = wire.run(move);
    move.passes_on = false;
    const WireNote folded = wire.run(move);
    // A fold that is told nothing finds by itself what is not finite: the block's first element, on this rank.
    if (!passed.found()) CHECK(folded.rank == 1);
    if (passed.found()) CHECK(folded.rank == passed.rank);
    return passed;
  };
  constexpr size_t kNumber = 0, kRank = 4, kKind = 6;
  CHECK(note_with(kRank, 2, 0).rank == 0);
  CHECK(note_with(kRank, 2, kWorld - 1).rank == kWorld - 1);
  CHECK(note_with(kRank, 2, kWorld - 1).index == kBad);
  for (const uint32_t rank : {uint32_t{kWorld}, 255u, 256u, 65535u}) CHECK_FALSE(note_with(kRank, 2, rank).found());
  CHECK(note_with(kNumber, 4, kCount).index == kCount - 1);
  for (const uint32_t number : {uint32_t{0}, uint32_t{kCount + 1}, UINT32_MAX}) {
    CHECK_FALSE(note_with(kNumber, 4, number).found());
  }
  CHECK(note_with(kKind, 1, 3).kind == WireNote::Kind::kTooLarge);
  for (const uint32_t kind : {0u, 4u, 255u}) CHECK_FALSE(note_with(kKind, 1, kind).found());
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
