// Equal calls have equal bits while their ways are being timed.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstring>
#include <set>
#include <string_view>
#include <vector>

#include "ring/base/hash.h"
#include "tests/support/random.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

struct Shape {
  int world;
  const char* transport;
  size_t count;
  bool several = true;  // there is more than one way, also where ranks may not read each other's memory
};
constexpr Shape kShapes[] = {
    {2, "shm", 16'384}, {2, "shm", 131'072}, {2, "tcp", 65'536}, {4, "shm", 16'384}, {4, "shm", 65'536, false}};
constexpr int kCalls = 1000;

uint64_t hash_of(const std::vector<float>& values) {
  const char* bytes = reinterpret_cast<const char*>(values.data());
  return Hash64().add(std::string_view(bytes, values.size() * sizeof(float))).value();
}

// kCalls equal calls have equal results. Sums of such numbers depend on their order. Returns the algorithms that ran.
std::set<Algorithm> expect_same_bits(Communicator& group, size_t count) {
  Random random(static_cast<uint64_t>(group.rank()) + 1);
  std::vector<float> input(count), output(count);
  for (float& value : input) value = static_cast<float>(random.below(1'000'000)) * 1.7e-3f;
  std::set<Algorithm> ran;
  uint64_t first = 0;
  for (int call = 0; call < kCalls; ++call) {
    ran.insert(group.algorithm_for(Collective::kAllReduce, count, DType::kFloat32, Op::kSum));
    group.all_reduce(input.data(), output.data(), count, DType::kFloat32);
    const uint64_t hash = hash_of(output);
    if (call == 0) first = hash;
    expect(hash == first, [&] { return fmt::format("call {} has other bits", call); });
  }
  return ran;
}

}  // namespace

TEST_CASE("1,000 equal calls give the same bits, by whatever ways they run") {
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.world);
    CAPTURE(shape.transport);
    CAPTURE(shape.count);
    RankGroup group;
    group.world = shape.world;
    group.config.transport = shape.transport;
    CHECK(run_processes(group, [&](Communicator& communicator) {
            const std::set<Algorithm> ran = expect_same_bits(communicator, shape.count);
            expect(!shape.several || ran.size() > 1, "only one way was tried");
          }) == "");
  }
}

}  // namespace rondo::testing
