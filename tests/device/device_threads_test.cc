// Ranks that are threads of one process, and wait in their streams' place, since they share a queue of the device, in
// which a wait of one rank would stand before what it waits for: every collective on device memory gives the reference
// result; failures and different calls end in errors.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "rondo/interrupt.h"
#include "tests/device/device_cases.h"

namespace rondo::testing {
namespace {

void check(const RankGroup& ranks, const std::vector<CollectiveCase>& cases,
           BufferKind kind = BufferKind::kOddRegistered) {
  CAPTURE(static_cast<int>(kind));
  check_threads({ranks}, [&](Communicator& group) { run_on_device(group, cases, kind); });
}

}  // namespace

TEST_CASE("every collective on threads") {
  for (int world = 1; world <= 5; ++world) {
    check(device_group(world), all_shapes({world, {1, 1237}, {world - 1}}), BufferKind::kPlain);
  }
  for (const int world : {2, 4}) {
    for (const BufferKind kind : kKinds) check(registered_group(world), all_shapes({world, {1237}, {world / 2}}), kind);
  }
  check(ring_group(3), all_shapes({3, {1237}, {1}}));
}

TEST_CASE("threads in turn on 2 to 8 devices") {
  for (const int devices : {2, 4, 8}) {
    CAPTURE(devices);
    setenv("FAKE_CUDA_COUNT", std::to_string(devices).c_str(), 1);
    for (const RankGroup& group : {device_group(devices), registered_group(devices), ring_group(devices)}) {
      check_threads({group}, [&](Communicator& comm) {
        use_device(comm.rank(), devices);
        run_on_device(comm, all_shapes({devices, {777}, {1}}));
      });
    }
  }
  unsetenv("FAKE_CUDA_COUNT");
}

// All of it: device_matrix_test.cc.
TEST_CASE("a part of the full matrix on 5 to 8 threads") {
  const auto seed = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  CAPTURE(seed);
  for (int world = 5; world <= 8; ++world) {
    for (const BufferKind kind : kKinds) check(device_group(world), drawn_of_matrix(world, 12, seed), kind);
    check(ring_group(world), drawn_of_matrix(world, 12, seed + 1));
  }
}

TEST_CASE("calls of many pieces on threads") {
  check(small_windows(device_group(3)), large_shapes(3));
  check(small_windows(ring_group(3)), large_shapes(3));
}

TEST_CASE("calls by the ring, over all memory and staged in turn on threads") {
  check_threads({small_windows(device_group(3))}, call_in_turn);
}

TEST_CASE("threads that share a stream, or the legacy stream, staged") {
  for (const bool legacy : {false, true}) {
    CAPTURE(legacy);
    const Mirror shared;
    const CallOptions options{.stream = legacy ? nullptr : shared.stream()};
    check_threads({staged_group(3)}, [&](Communicator& group) {
      Sum sum(group, nullptr, 30'000), in(group, nullptr, 30'000);
      for (int i = 0; i < 5; ++i) {
        sum.call(Op::kSum, options);
        group.sendrecv(sum.data(), 30'000, (group.rank() + 1) % 3, in.data(), 30'000, (group.rank() + 2) % 3,
                       DType::kInt32, 0, options);
      }
      sum.mirror.driver().synchronize(*options.stream);
      expect(sum.value() == 243 && in.value() == 243, "the wrong sum");
    });
  }
}

TEST_CASE(
    "threads that share a stream where calls are kernels: the second one is refused, until the first has another") {
  std::atomic<DeviceStream> first{nullptr};  // rank 0's
  check_threads({device_group(2)}, [&](Communicator& group) {
    Sum sum(group, nullptr, 1000);
    if (group.rank() == 0) first = sum.mirror.stream();
    sum.start().wait();
    group.barrier();
    if (group.rank() == 1) {
      expect_error(error_of([&] { sum.call(Op::kSum, {.stream = first.load()}); }), ErrorCode::kInvalid,
                   "rank 0, a thread of this process, uses the same stream");
    }
    group.barrier();
    sum.start().wait();
    expect(sum.value() == 4, "the wrong sum");
    const Mirror beside;
    const auto start_in = [&](DeviceStream others) {
      return sum.start(Op::kSum, {.stream = group.rank() == 0 ? beside.stream() : others});
    };
    start_in(sum.mirror.stream()).wait();
    start_in(first).wait();
    expect(sum.value() == 16, "the wrong sum");
    group.barrier();  // the stream is rank 0's
  });
}

// The driver of one process counts what all ranks hold.
TEST_CASE("memory that ranks cannot map is held by none of them when the call returns") {
  if (on_a_gpu()) return;
  check_threads({device_group(3)}, [](Communicator& comm) {
    comm.deallocate(comm.allocate(4096, Memory::kDevice));
    comm.barrier();
    const int held = counted("fake_cuda_held");
    comm.barrier();
    if (comm.rank() == 0) setenv("FAKE_CUDA_IMPORTS", "0", 1);
    comm.barrier();
    const Error error = error_of([&] { comm.allocate(4096, Memory::kDevice); });
    const int left = counted("fake_cuda_held");
    expect_error(error, ErrorCode::kSystem, "cannot be mapped");
    expect(left == held, [&] { return std::to_string(left - held) + " pieces are still held"; });
    comm.barrier();
    if (comm.rank() == 0) unsetenv("FAKE_CUDA_IMPORTS");
    comm.barrier();
    comm.deallocate(comm.allocate(4096, Memory::kDevice));
  });
}

TEST_CASE("messages on threads") {
  for (const int world : {1, 2, 3}) {
    check_threads({device_group(world)}, ring_of_messages);
    check_threads({device_group(world)}, messages_beside_collectives);
  }
}

TEST_CASE("after a call has failed on threads no other rank touches its memory") {
  for (int i = 0; i < 10; ++i) check_threads({device_group(3), ring_group(3)}, write_after_failure);
}

TEST_CASE("one of two threads does not make the call: TIMEOUT on both, by the call's deadline") {
  std::atomic<bool> over{false};
  check_threads({device_group(2)}, [&](Communicator& group) {
    Sum sum(group, nullptr, 1000);
    sum.call();
    expect(sum.value() == 2, "the wrong sum");
    if (group.rank() == 1) {
      while (!over.load()) std::this_thread::yield();
      return expect_error(error_of([&] { group.barrier(); }), ErrorCode::kTimeout, "have not made the call: 1");
    }
    const auto begin = Clock::now();
    const CallOptions options{.timeout = std::chrono::milliseconds(500), .stream = sum.mirror.stream()};
    const Error error = error_of([&] { sum.start(Op::kSum, options).wait(); });
    over = true;
    expect_error(error, ErrorCode::kTimeout, "have not made the call: 1");
    expect(Clock::now() - begin < std::chrono::seconds(3), "it took longer than 3 s");
  });
}

TEST_CASE("the program's function ends a wait for the call of another thread") {
  std::atomic<bool> over{false};
  check_threads({device_group(2)}, [&](Communicator& group) {
    Sum sum(group, nullptr, 1000);
    sum.call();
    expect(sum.value() == 2, "the wrong sum");
    if (group.rank() == 1) {
      while (!over.load()) std::this_thread::yield();
      return expect_error(error_of([&] { group.barrier(); }), ErrorCode::kAborted, "was interrupted");
    }
    set_thread_interrupt_function([](void*) { return 1; }, nullptr);
    const Error error = error_of([&] { sum.start().wait(); });
    over = true;
    expect_error(error, ErrorCode::kInterrupted, "was interrupted");
  });
}

TEST_CASE("different calls on threads: both are shown") { check_threads({device_group(2)}, call_differently); }

}  // namespace rondo::testing
