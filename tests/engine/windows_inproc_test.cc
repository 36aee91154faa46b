// Plans over windows: ranks as threads, whose windows are their own memory.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <vector>

#include "rondo/communicator.h"
#include "tests/engine/cases.h"
#include "tests/engine/window_cases.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

RankGroup shape_of(int world) {
  RankGroup shape{.world = world};
  shape.config.staging_bytes = 64 * 1024;  // many rounds
  return shape;
}

}  // namespace

TEST_CASE("every collective over windows gives the reference result: staged, pulled, registered by all") {
  // Proves: the plans, bound to buffers of every shape, over several rounds.
  for (const int world : {2, 3, 5}) {
    CAPTURE(world);
    const uint64_t large = world > 3 ? 8'191 : 40'011;  // fewer where many ranks take turns on few cores
    CHECK(run_threads(shape_of(world),
                      [&](Communicator& group) { run_over_windows(group, usual_counts(world, large)); }) == "");
  }
}

TEST_CASE("buffers registered by all, some or none of the ranks") {
  // Proves: all ranks choose one plan from what all have told, whatever each has.
  for (const int world : {2, 3, 5}) {
    CAPTURE(world);
    CHECK(run_threads(shape_of(world), [&](Communicator& group) { run_mixed_registration(group); }) == "");
  }
}

TEST_CASE("large calls: registered buffers where they lie, links for others, one after the other") {
  for (const int world : {2, 3}) {
    CAPTURE(world);
    CHECK(run_threads(shape_of(world), [&](Communicator& group) { run_large_in_turns(group); }) == "");
  }
}

TEST_CASE("all ranks choose alike, whatever each has kept of the call before") {
  // Proves: while a call is timed, another between that binds nothing does not settle it for the ranks that call as
  // before, and not for those whose operation is a new one.
  CHECK(run_threads(shape_of(2), [](Communicator& group) {
          constexpr size_t kCount = 128 * 1024;  // float32: pulled and staged in turns
          std::vector<float> input(kCount), output(kCount), small(4096, 1);
          for (int i = 1; i <= 12; ++i) {
            std::fill(input.begin(), input.end(), static_cast<float>((group.rank() + 1) * i));
            Call call;
            call.input = input.data();
            call.output = output.data();
            call.count = kCount;
            if (group.rank() == 0) {
              group.run(call);
            } else {
              group.start(call).wait();
            }
            expect(output == std::vector<float>(kCount, static_cast<float>(3 * i)), fmt::format("sum {} is wrong", i));
            const TensorRef between{small.data(), small.data(), small.size(), DType::kFloat32};
            group.all_reduce_many({&between, 1});
          }
        }) == "");
}

TEST_CASE("a plan that the buffers do not allow is refused on all ranks, and the communicator goes on") {
  CHECK(run_threads(shape_of(3), [](Communicator& group) { run_refusals(group); }) == "");
}

}  // namespace rondo::testing
