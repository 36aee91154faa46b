// Ranks that are threads of one process, and share a queue of the device, in which a wait of one rank would stand
// before the copies of the others: every collective on device memory gives the reference result.
#include <doctest/doctest.h>

#include <atomic>

#include "tests/device/message_cases.h"

namespace rondo::testing {

TEST_CASE("every collective on threads") {
  for (int world = 1; world <= 5; ++world) {
    CAPTURE(world);
    const auto cases = all_shapes({world, {1, 1237}, {world - 1}});
    CHECK(run_threads(device_group(world, "auto"), [&](Communicator& group) { run_on_device(group, cases); }) == "");
  }
}

TEST_CASE("buffers of several pieces on threads") {
  CollectiveCase what;
  what.world = 3;
  what.count = 3'000'001;
  CHECK(run_threads(device_group(3, "auto"), [&](Communicator& group) { run_on_device(group, {what}); }) == "");
}

TEST_CASE("threads that share a stream, or the legacy stream, staged") {
  for (const bool legacy : {false, true}) {
    CAPTURE(legacy);
    RankGroup ranks = device_group(3, "auto");
    ranks.config.device_window_bytes = 0;
    const Mirror shared;
    const CallOptions options{.stream = legacy ? nullptr : shared.stream()};
    CHECK(run_threads(ranks, [&](Communicator& group) {
            Mirror mirror;
            std::pmr::vector<int32_t> values(30'000, 1, &mirror), in(30'000, 0, &mirror);
            mirror.to_device();
            mirror.synchronize();
            int32_t *const data = mirror.image_of(values.data()), *const to = mirror.image_of(in.data());
            for (int i = 0; i < 5; ++i) {
              group.all_reduce(data, data, 30'000, DType::kInt32, Op::kSum, options);
              group.sendrecv(data, 30'000, (group.rank() + 1) % 3, to, 30'000, (group.rank() + 2) % 3, DType::kInt32, 0,
                             options);
            }
            mirror.driver().synchronize(*options.stream);
            mirror.to_host();
            mirror.synchronize();
            expect(values.front() == 243 && values.back() == 243 && in.back() == 243, "the wrong sum");
          }) == "");
  }
}

TEST_CASE("threads that share a stream where calls are kernels: the second one is refused") {
  std::atomic<DeviceStream> first{nullptr};  // rank 0's
  CHECK(run_threads(device_group(2, "auto"), [&](Communicator& group) {
          Sum sum(group, nullptr, 1000);
          if (group.rank() == 0) first = sum.mirror.stream();
          sum.start().wait();
          group.barrier();
          if (group.rank() == 1) {
            void* const data = sum.mirror.image(sum.values.data());
            const Error error = error_of(
                [&] { group.all_reduce(data, data, 1000, DType::kInt32, Op::kSum, {.stream = first.load()}); });
            expect_error(error, ErrorCode::kInvalid, "rank 0, a thread of this process, uses the same stream");
          }
          group.barrier();
          sum.start().wait();
          expect(sum.value() == 4, "the wrong sum");
        }) == "");
}

TEST_CASE("messages on threads") {
  for (const int world : {1, 2, 3}) {
    CAPTURE(world);
    CHECK(run_threads(device_group(world, "auto"), ring_of_messages) == "");
    CHECK(run_threads(device_group(world, "auto"), messages_beside_collectives) == "");
  }
}

}  // namespace rondo::testing
