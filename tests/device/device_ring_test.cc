// The ring over devices: where not all map each other's memory, and where it is asked for.
// All collectives give the reference result, in places for messages that calls and pieces use in turn.
#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/device/island_cases.h"

namespace rondo::testing {
namespace {

// A device a rank, in processes of their own; setting: of the fake driver.
RankGroup devices_group(int world, const char* setting, const std::string& value, uint64_t window_bytes = 1u << 20) {
  RankGroup group = device_group(world, "shm", {{"FAKE_CUDA_COUNT", std::to_string(world)}, {setting, value}});
  group.config.device_window_bytes = window_bytes;
  group.before = [set = group.before](int rank) {
    set(rank);
    DeviceDriver::open(device_library())->use(rank);
  };
  return group;
}

int locked_pieces() { return counted("fake_cuda_locked"); }

}  // namespace

TEST_CASE("every collective, by the ring where it has one: processes") {
  for (const int world : {1, 2, 3, 4, 8}) {
    CAPTURE(world);
    const auto cases = all_shapes({world, {1, uint64_t(world + 1), 1237}, {world / 2}});
    CHECK(run_processes(ring_group(world), [&](Communicator& group) { run_all(group, cases); }) == "");
  }
}

TEST_CASE("every dtype with every op") {
  const auto cases = all_reductions(3);
  CHECK(run_processes(ring_group(3), [&](Communicator& group) { run_all(group, cases); }) == "");
}

TEST_CASE("many pieces, whose messages take the places in turn") {
  const auto cases = large_shapes(3);
  CHECK(run_processes(ring_group(3, 64 * 1024), [&](Communicator& group) { run_all(group, cases); }) == "");
}

TEST_CASE("devices that reach their neighbors only, in the order of ranks or in another: the ring, else staged") {
  if (on_a_gpu()) return;
  const auto cases = all_shapes({4, {3, 1237}, {1}});
  const auto large = large_shapes(4);
  for (const char* pairs : {"01 10 12 21 23 32 30 03", "02 20 21 12 13 31 30 03", "03 30 31 13 12 21 20 02 10"}) {
    CAPTURE(std::string(pairs));
    CHECK(run_processes(devices_group(4, "FAKE_CUDA_PEERS", pairs, 64 * 1024), [&](Communicator& group) {
            run_all(group, cases);
            run_all(group, large);
          }) == "");
  }
}

TEST_CASE("devices without a ring: all ranks stage") {
  if (on_a_gpu()) return;
  const auto cases = all_shapes({3, {1237}, {1}});
  CHECK(run_processes(devices_group(3, "FAKE_CUDA_PEERS", "01 10 12"), [&](Communicator& group) {
          run_on_device(group, cases, BufferKind::kOddRegistered);
          expect(passes_over_ranks() == 0, "a call was not staged");
        }) == "");
}

// Freed memory that stayed locked would be taken for locked memory when it is allocated again.
TEST_CASE("a communicator that fails while its devices try to reach each other gives all locked memory back") {
  if (on_a_gpu()) return;
  CHECK(run_processes(devices_group(2, "FAKE_CUDA_LATE_US", "500000"), [](Communicator& group) {
          std::thread aborts([&] {
            while (group.rank() == 1 && locked_pieces() == 0) std::this_thread::yield();
            if (group.rank() == 1) group.abort("enough");
          });
          const Error error = error_of([&] { group.attach_device(); });
          aborts.join();
          expect_error(error, ErrorCode::kAborted, "enough");
          expect(locked_pieces() == 0, "host memory is still locked");
          expect(DeviceDriver::open(device_library())->take_blocks(group.rank(), 16, 1) == 16,
                 "blocks are still taken");
        }) == "");
}

// As on a GPU whose context is broken: what is in the stream neither goes on nor ends.
TEST_CASE("a pass that never ends holds up neither the end of its call nor destroy") {
  if (on_a_gpu()) return;
  RankGroup group = devices_group(2, "FAKE_CUDA_PASS_US", "0");
  group.config.destroy_timeout_ms = 1'000;
  CHECK(run_processes(group, [](Communicator& comm) {
          Sum sum(comm, comm.allocate(1u << 20, Memory::kDevice), 1000);
          const int before = passes_over_ranks();
          if (comm.rank() == 0) setenv("FAKE_CUDA_PASS_US", "600000000", 1);
          Work work = sum.start();
          while (comm.rank() == 0 && passes_over_ranks() == before) std::this_thread::yield();
          if (comm.rank() == 0) comm.abort("enough");
          const auto since = std::chrono::steady_clock::now();
          expect_error(error_of([&] { work.wait(); }), ErrorCode::kAborted, "enough");
          comm.destroy();
          expect(std::chrono::steady_clock::now() - since < std::chrono::seconds(30), "the wait was too long");
          if (comm.rank() == 0) _exit(0);  // its stream is never empty
        }) == "");
}

TEST_CASE("calls by the ring, over all memory and staged in turn, many of them under way: places and windows are one") {
  RankGroup group = device_group(3, "auto");
  for (const uint64_t window : {uint64_t{64} * 1024, uint64_t{64} << 20}) {
    group.config.device_window_bytes = window;
    CHECK(run_processes(group, call_in_turn) == "");
  }
}

TEST_CASE("a failure between the passes of a ring ends all calls, and the device goes on") {
  for (int i = 0; i < 5; ++i) CHECK(run_processes(ring_group(3), fail_between_passes) == "");
}

}  // namespace rondo::testing
