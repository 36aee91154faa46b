// The passes of GPUs (kernels/device/fold_pass.h), compiled for this processor, give the bits of combine() for every
// dtype, op, flag, number of sources and targets, alignment, alias and number of threads, and touch nothing else.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/combine.h"
#include "kernels/resolve.h"
#include "tests/kernels/call_buffers.h"
#include "tests/support/element.h"
#include "tests/support/host_fold.h"
#include "tests/support/random.h"

namespace rondo::testing {
namespace {

constexpr uint64_t kSeed = 20261124;
struct Shape : BufferShape {
  uint64_t threads = 5;
};

std::vector<std::vector<unsigned char>> contributions(const CombineSpec& spec, const Shape& shape, Random& random) {
  const std::vector<uint64_t> special = special_values(spec.dtype);
  const size_t bytes = dtype_bytes(spec.dtype);
  std::vector<std::vector<unsigned char>> all(static_cast<size_t>(shape.sources));
  for (auto& one : all) {
    one.resize(shape.count * bytes);
    for (size_t i = 0; i < shape.count; ++i) {
      const uint64_t value = random.chance(20) ? special[random.below(special.size())] : random.next();
      store_element(spec.dtype, &one[i * bytes], value);
    }
  }
  return all;
}

DeviceFold device_fold(const CombineSpec& spec, const CombineMove& move, size_t count) {
  const ResolvedMove resolved = resolve(spec, move);
  DeviceFold fold = {};
  std::copy_n(move.sources, move.source_count, fold.sources);
  std::copy_n(move.targets, move.target_count, fold.targets);
  fold.count = count;
  fold.scaled = resolved.scaled;
  fold.arguments = {spec.scalar, spec.world};
  fold.source_count = move.source_count;
  fold.target_count = move.target_count;
  fold.dtype = static_cast<uint8_t>(spec.dtype);
  fold.fold = resolved.copies ? kCopies : static_cast<uint8_t>(resolved.fold);
  return fold;
}

void check(const CombineSpec& spec, const Shape& shape, uint64_t scaled, Random& random) {
  const auto contents = contributions(spec, shape, random);
  CallBuffers expected(shape, contents), found(shape, contents);
  const auto move_of = [&](CallBuffers& buffers) {
    return CombineMove{.sources = buffers.sources.data(),
                       .targets = buffers.targets.data(),
                       .scaled = scaled,
                       .source_count = static_cast<uint8_t>(shape.sources),
                       .target_count = static_cast<uint8_t>(shape.targets),
                       .finish = scaled % 2 == 1};
  };
  combine(spec, move_of(expected), shape.count);
  host_fold(device_fold(spec, move_of(found), shape.count), shape.threads);
  const bool same = expected == found;
  if (same) return;
  CHECK_MESSAGE(same, dtype_name(spec.dtype), " ", op_name(spec.op), " world ", spec.world, " sources ", shape.sources,
                " targets ", shape.targets, " alias ", shape.alias, " count ", shape.count, " offset ", shape.offset,
                " skew ", shape.skew, " threads ", shape.threads, " scaled ", scaled);
}

template <class Body>
void for_every_spec(Random& random, Body body) {
  for (int dtype = 0; dtype < kDTypes; ++dtype) {
    for (int op = 0; op < kOps; ++op) {
      CombineSpec spec{static_cast<DType>(dtype), static_cast<Op>(op)};
      if (!op_supports(spec.op, spec.dtype)) continue;
      spec.world = std::vector<uint32_t>{1, 2, 3, 7, 64, 70000, 4294967295u}[random.below(7)];
      spec.scalar = std::vector<double>{0.5, 1.0 / 3, -2.75, 1.0, 0.0, 65504.0}[random.below(6)];
      body(spec);
    }
  }
}

TEST_CASE("every dtype and op: random and special values, 1 to 9 and 64 sources") {
  Random random(kSeed);
  MESSAGE("seed ", kSeed);
  for_every_spec(random, [&](const CombineSpec& spec) {
    for (const int sources : {1, 2, 3, 4, 5, 8, 9, 64}) {
      for (const uint64_t scaled : {uint64_t{0}, ~uint64_t{0}, random.next()}) {
        check(spec, {{.sources = sources, .count = 131}}, scaled, random);
      }
    }
  });
}

TEST_CASE("all pairs of 8-bit floats") {
  Random random(kSeed);
  for_every_spec(random, [&](CombineSpec spec) {
    if (spec.dtype != DType::kFloat8E4M3 && spec.dtype != DType::kFloat8E5M2) return;
    spec.world = 3;
    std::vector<unsigned char> left(65536), right(65536), expected(65536), found(65536);
    for (size_t i = 0; i < 65536; ++i) {
      left[i] = static_cast<unsigned char>(i >> 8);
      right[i] = static_cast<unsigned char>(i);
    }
    const void* sources[] = {left.data(), right.data()};
    void* targets[] = {expected.data()};
    CombineMove move{
        .sources = sources, .targets = targets, .scaled = 3, .source_count = 2, .target_count = 1, .finish = true};
    combine(spec, move, 65536);
    targets[0] = found.data();
    host_fold(device_fold(spec, move, 65536), 17);
    CHECK_MESSAGE(expected == found, dtype_name(spec.dtype), " ", op_name(spec.op));
  });
}

TEST_CASE("every count, alignment and alias") {
  Random random(kSeed);
  for_every_spec(random, [&](const CombineSpec& spec) {
    const size_t element = dtype_bytes(spec.dtype);
    for (size_t count = 0; count <= 40; ++count) {
      for (const size_t offset : {size_t{0}, element % 16, size_t{1}}) {
        const size_t skew = std::vector<size_t>{0, element % 16, 3, 8}[random.below(4)];
        check(spec,
              {{.alias = int(count % 3) - 1, .count = count, .offset = offset, .skew = skew}, 1 + random.below(40)},
              random.next(), random);
      }
    }
  });
}

TEST_CASE("several targets, many packets a thread") {
  Random random(kSeed);
  for_every_spec(random, [&](const CombineSpec& spec) {
    for (const Shape& shape : {Shape{{.sources = 3, .targets = 3, .alias = 2, .count = 1021}, 4},
                               Shape{{.sources = 2, .targets = 2, .alias = 0, .count = 1021, .offset = 8}, 33},
                               Shape{{.sources = 1, .targets = 3, .count = 1021}, 7},
                               Shape{{.sources = 5, .targets = 64, .count = 300, .skew = 1}, 2}}) {
      check(spec, shape, random.next(), random);
    }
  });
}

}  // namespace
}  // namespace rondo::testing
