// The passes of the device give the bits of combine() for every dtype, op and flag, 1 to 8 sources, aligned or not, in
// place or not. Over the fake driver by default; on a GPU by tests/device/gpu.sh, where it is the proof of the kernels.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/combine.h"
#include "kernels/resolve.h"
#include "tests/support/element.h"
#include "tests/support/fake_cuda/mirror.h"
#include "tests/support/random.h"

namespace rondo::testing {
namespace {

constexpr uint64_t kSeed = 20261124;
// Several packets a thread at the smallest grid, and a tail of every dtype.
constexpr size_t kCount = 40'003;

struct Shape {
  int sources = 2;
  int targets = 1;
  int alias = -1;   // target 0 is this source; -1: none
  size_t skew = 0;  // bytes that each next buffer begins further behind an aligned address
};

// Buffers of one call, one behind the other in one run of host memory and its image.
struct Buffers {
  Buffers(Mirror& mirror, const Shape& shape, size_t bytes)
      : memory(static_cast<size_t>(shape.sources + shape.targets) * (bytes + 64), &mirror) {
    for (int b = 0; b < shape.sources + shape.targets; ++b) {
      const size_t at = static_cast<size_t>(b) * ((bytes + 64) / 16 * 16) + static_cast<size_t>(b) * shape.skew % 16;
      (b < shape.sources ? sources : targets).push_back(memory.data() + at);
    }
    if (shape.alias >= 0) targets[0] = sources[static_cast<size_t>(shape.alias)];
  }
  std::pmr::vector<std::byte> memory;
  std::vector<std::byte*> sources, targets;
};

void check(const CombineSpec& spec, const Shape& shape, uint64_t scaled, Random& random) {
  Mirror mirror;
  const size_t element = dtype_bytes(spec.dtype), bytes = kCount * element;
  Buffers buffers(mirror, shape, bytes);
  const std::vector<uint64_t> special = special_values(spec.dtype);
  for (std::byte* source : buffers.sources) {
    for (size_t i = 0; i < kCount; ++i) {
      store_element(spec.dtype, source + i * element,
                    random.chance(10) ? special[random.below(special.size())] : random.next());
    }
  }
  mirror.to_device();
  CombineMove move{.scaled = scaled, .finish = scaled % 2 == 1};
  std::vector<const void*> from(buffers.sources.begin(), buffers.sources.end());
  std::vector<void*> to(buffers.targets.begin(), buffers.targets.end());
  move.sources = from.data();
  move.targets = to.data();
  move.source_count = static_cast<uint8_t>(from.size());
  move.target_count = static_cast<uint8_t>(to.size());
  const ResolvedMove resolved = resolve(spec, move);
  DeviceFold fold = pass_of(spec.dtype, resolved.fold, from, to, kCount);
  for (const void*& at : std::span(fold.sources, from.size())) at = mirror.image(at);
  for (void*& at : std::span(fold.targets, to.size())) at = mirror.image(at);
  fold.scaled = resolved.scaled;
  fold.arguments = {spec.scalar, spec.world};
  if (!resolved.copies) fold.fold = static_cast<uint8_t>(resolved.fold);
  REQUIRE(mirror.driver().fold(fold, mirror.stream()) == 0);
  REQUIRE(mirror.driver().synchronize(mirror.stream()) == 0);
  combine(spec, move, kCount);
  const std::vector<std::byte> expected(buffers.memory.begin(), buffers.memory.end());
  mirror.to_host();
  const bool same = std::equal(expected.begin(), expected.end(), buffers.memory.begin());
  CHECK_MESSAGE(same, dtype_name(spec.dtype), " ", op_name(spec.op), " ", shape.sources, " sources ", shape.targets,
                " targets alias ", shape.alias, " skew ", shape.skew, " scaled ", scaled);
}

TEST_CASE("every dtype and op") {
  Random random(kSeed);
  MESSAGE("seed ", kSeed, ", driver ", std::string(device_library()));
  for (int dtype = 0; dtype < kDTypes; ++dtype) {
    for (int op = 0; op < kOps; ++op) {
      CombineSpec spec{static_cast<DType>(dtype), static_cast<Op>(op), 1.0 / 3, 3};
      if (!op_supports(spec.op, spec.dtype)) continue;
      const size_t element = dtype_bytes(spec.dtype) % 16;
      check(spec, {}, 0, random);
      check(spec, {.sources = 8, .targets = 2, .alias = 3}, ~uint64_t{0}, random);
      check(spec, {.sources = 3, .targets = 1, .alias = 0, .skew = element}, random.next(), random);
      check(spec, {.sources = 1, .targets = 2, .skew = 1}, random.next(), random);
    }
  }
}

}  // namespace
}  // namespace rondo::testing
