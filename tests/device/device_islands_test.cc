// What ranks whose devices share memory make, map and give back: memory of allocate(), blocks of the device, locked
// host memory; and that nobody touches it once its rank's calls have failed.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "tests/device/device_cases.h"

namespace rondo::testing {
namespace {

int locked_pieces() { return counted("fake_cuda_locked"); }
// How often a function of the driver has been called; nullptr: all of them.
int called(const char* name = nullptr) { return fake_function<int(const char*)>("fake_cuda_called")(name); }

// The call puts one kernel into its stream, and no copy.
template <class Call>
void expect_one_kernel(Call call) {
  const auto copies = [] { return called("cuMemcpyAsync") + called("cuMemcpy2DAsync"); };
  const int kernels = called("cuLaunchKernel"), before = copies();
  call();
  expect(called("cuLaunchKernel") - kernels == 1, "so many kernels");
  expect(copies() == before, "copies");
}

}  // namespace

TEST_CASE("device memory: zeroed, of different sizes, given back, and again") {
  check_processes(both_ways(3), [](Communicator& group) {
    for (int i = 0; i < 3; ++i) {
      const size_t bytes = 4096u * static_cast<size_t>(group.rank() + i + 1);
      auto* const memory = static_cast<std::byte*>(group.allocate(bytes, Memory::kDevice));
      Mirror mirror;
      std::pmr::vector<std::byte> seen(bytes, std::byte{1}, &mirror);
      expect(mirror.driver().copy(whole(seen.data(), memory, bytes), mirror.stream()) == 0, "no copy");
      mirror.synchronize();
      for (const std::byte byte : seen) expect(byte == std::byte{0}, "memory that is not zeroed");
      group.all_reduce(memory, memory, 1024, DType::kInt32, Op::kSum, {.stream = mirror.stream()});
      group.deallocate(memory);  // waits for the call
      expect_error(error_of([&] { group.deallocate(memory); }), ErrorCode::kInvalid, "no memory");
    }
    expect_error(error_of([&] { group.allocate(0, Memory::kDevice); }), ErrorCode::kInvalid, "0 bytes");
    const size_t most = group.rank() == 1 ? size_t{1} << 62 : 4096;
    const Error error = error_of([&] { group.allocate(most, Memory::kDevice); });
    expect_error(error, ErrorCode::kSystem, group.rank() == 1 ? "device memory" : "rank 1");
    group.deallocate(group.allocate(4096, Memory::kDevice));
  });
}

TEST_CASE("memory that every rank gives back in an order of its own, and the last one by destroy()") {
  check_processes({device_group(3)}, [](Communicator& comm) {
    std::vector<void*> memories;
    for (int i = 0; i < 4; ++i) memories.push_back(comm.allocate(1u << 20, Memory::kDevice));
    Sum sum(comm, memories[3], 1000);
    sum.start().wait();
    expect(sum.value() == 3, "the wrong sum");
    for (int i = 0; i < 3; ++i) comm.deallocate(memories[static_cast<size_t>((i + comm.rank()) % 3)]);
    if (comm.rank() == 0) comm.destroy();
  });
}

TEST_CASE("a rank that dies while others map its memory") {
  if (on_a_gpu()) return;
  check_processes({device_group(3, "shm")}, [](Communicator& comm) {
    void* const memory = comm.allocate(1u << 20, Memory::kDevice);
    Sum sum(comm, memory, 1000);
    sum.start().wait();
    if (comm.rank() == 1) _exit(0);
    expect_error(error_of([&] { sum.start().wait(); }), ErrorCode::kPeerLost, "rank 1");
    sum.mirror.to_host();
    const auto begin = Clock::now();
    comm.destroy();
    expect(Clock::now() - begin < std::chrono::seconds(2), "destroy waits for the dead rank");
  });
}

TEST_CASE("communicators share the blocks of a device: those that find none stage, and blocks are given back") {
  if (on_a_gpu()) return;  // a GPU has more
  check_processes({device_group(2, "shm", {{"FAKE_CUDA_COUNT", "1"}})}, [](Communicator& group) {
    const std::vector<int> both{0, 1};
    std::vector<Communicator> groups;
    const auto runs_kernels = [&] {
      groups.push_back(group.new_group(both));
      Sum sum(groups.back(), nullptr, 1000);
      const int before = passes_over_ranks();
      sum.start().wait();
      expect(sum.value() == 2, "the wrong sum");
      return passes_over_ranks() > before;
    };
    for (int i = 0; i < 6; ++i) expect(runs_kernels(), "no blocks for the first ones");
    expect(!runs_kernels(), "more blocks than the device has");
    groups[0].destroy();
    expect(runs_kernels(), "blocks are not given back");
  });
}

TEST_CASE("an all_reduce of 8 bytes on a stream takes at most 8 functions of the driver, in place at most 7") {
  if (on_a_gpu()) return;
  check_processes({device_group(2)}, [](Communicator& group) {
    constexpr int kCalls = 10;
    const auto calls_of = [&](void* memory, int output) {
      Sum sum(group, memory, 4);
      sum.mirror.driver().use(sum.mirror.device());  // as CUDA's runtime does
      auto* const data = static_cast<int32_t*>(sum.data());
      const auto call = [&] {
        for (int i = 0; i < kCalls; ++i) {
          group.all_reduce(data, data + output, 2, DType::kInt32, Op::kMax, sum.options());
        }
      };
      call();               // makes events
      int least = INT_MAX;  // a wait of more than 200 us, on a machine that does much else, takes more
      for (int i = 0; i < 5; ++i) {
        group.barrier();
        const int before = called();
        call();
        least = std::min(least, called() - before);
      }
      expect(sum.value() == 1, "the wrong maximum");
      return (least + kCalls - 1) / kCalls;
    };
    void* const registered = group.allocate(1u << 20, Memory::kDevice);
    for (void* const memory : {static_cast<void*>(nullptr), registered}) {
      const int in_place = calls_of(memory, 0), out_of_place = calls_of(memory, 2);
      expect(in_place <= 7 && out_of_place <= 8, std::to_string(in_place) + " and " + std::to_string(out_of_place));
    }
  });
}

TEST_CASE("a staged all_reduce of 8 bytes puts two functions of the host into its stream: its begin and its end") {
  if (on_a_gpu()) return;
  check_processes({staged_group(2)}, [](Communicator& group) {
    constexpr int kCalls = 10;
    Sum sum(group, nullptr, 2);
    sum.call();  // attaches
    const int before = called("cuLaunchHostFunc");
    for (int i = 0; i < kCalls; ++i) sum.call(Op::kMax);
    expect(called("cuLaunchHostFunc") - before == 2 * kCalls, "so many functions");
    expect(sum.value() == 2, "the wrong maximum");
  });
}

TEST_CASE("a call of 8 bytes, by posts, too, and of many windows' size is one kernel and no copy, on any buffers") {
  if (on_a_gpu()) return;
  check_processes({device_group(3), small_windows(registered_group(3)), small_windows(ring_group(3))},
                  [](Communicator& group) {
                    void* const memory = group.allocate(1u << 20, Memory::kDevice);
                    for (const size_t count : {2, 200'000}) {
                      for (const int plain : {0, 1, 3}) {
                        Sum sum(group, group.rank() < plain ? nullptr : memory, count);
                        sum.call();  // makes an event
                        expect_one_kernel([&] { sum.call(); });
                        expect(sum.value() == 9, "the wrong sum");
                      }
                    }
                  });
}

TEST_CASE("so are calls whose counts pairs alone know, and sums with factors of each rank's own") {
  if (on_a_gpu()) return;
  check_processes({registered_group(3), small_windows(registered_group(3))}, [](Communicator& group) {
    Mirror mirror(nullptr, 1u << 20);
    std::pmr::vector<float> input(60'000, 1, &mirror), output(60'000, 0, &mirror);
    mirror.to_device();
    void *const from = mirror.image(input.data()), *const to = mirror.image(output.data());
    const auto own = static_cast<uint64_t>(group.rank());
    // Rank r sends 1,000 r + 100 p to p.
    std::vector<uint64_t> sent, received;
    for (uint64_t p = 0; p < 3; ++p) sent.push_back(1000 * own + 100 * p), received.push_back(1000 * p + 100 * own);
    CallOptions options{.stream = mirror.stream()};
    for (int i = 0; i < 2; ++i) {
      const auto exchange = [&] { group.all_to_all_v(from, sent, {}, to, received, {}, DType::kFloat32, options); };
      i == 0 ? exchange() : expect_one_kernel(exchange);
    }
    options.scalar = 1.0 + group.rank();
    expect_one_kernel([&] { group.all_reduce(from, to, 60'000, DType::kFloat32, Op::kPremulSum, options); });
    mirror.to_host();
    for (const float sum : output) expect(sum == 6, "the wrong sum");
  });
}

TEST_CASE("who waits for a kernel of a long stream is woken by it, and so is a call on host memory behind it") {
  if (on_a_gpu()) return;  // a GPU's kernels are not late
  check_processes({device_group(2, "shm", {{"FAKE_CUDA_LATE_US", "30000"}})}, [](Communicator& group) {
    Sum sum(group, nullptr, 2);
    sum.start().wait();
    expect(called("cuLaunchHostFunc") == 1, "a wait of 30 ms puts no function into a stream");
    sum.call();
    group.barrier();
    expect(called("cuLaunchHostFunc") == 2, "a call on host memory is not woken");
    std::atomic<bool> ended{false};
    Work work = sum.start();
    work.on_end([&](const Error&) { ended = true; });
    while (!ended) std::this_thread::yield();
    expect(called("cuLaunchHostFunc") == 3, "a function of on_end() is not woken");
    expect(sum.value() == 8, "the wrong sum");
  });
}

// What a GPU of 132 multiprocessors has in all is 528.
TEST_CASE("many communicators of a process get as many blocks each") {
  if (on_a_gpu()) return;
  const Settings settings{{"FAKE_CUDA_MULTIPROCESSORS", "132"}, {"FAKE_CUDA_COUNT", "1"}};
  check_processes({device_group(2, "shm", settings)}, [](Communicator& world) {
    std::vector<Communicator> groups;
    for (int i = 0; i < 14; ++i) {
      groups.push_back(world.dup());
      Sum sum(groups.back(), nullptr, 1000);
      sum.start().wait();
      expect(sum.value() == 2, "the wrong sum");
    }
    const auto driver = DeviceDriver::open(device_library());
    const uint32_t half_of_the_rest = (528 - 14 * 32) / 2;
    expect(driver->take_blocks(0, 528, 1) == half_of_the_rest, "some have fewer");
  });
}

// Freed memory that stayed locked would be taken for locked memory when it is allocated again.
TEST_CASE("a communicator that fails while its devices try to reach each other gives all locked memory back") {
  if (on_a_gpu()) return;
  check_processes({device_group(2, "shm", {{"FAKE_CUDA_LATE_US", "500000"}, {"FAKE_CUDA_COUNT", "1"}})},
                  [](Communicator& group) {
                    const auto driver = DeviceDriver::open(device_library());  // counts from here on
                    std::thread aborts([&] {
                      while (group.rank() == 1 && locked_pieces() == 0) std::this_thread::yield();
                      if (group.rank() == 1) group.abort("enough");
                    });
                    const Error error = error_of([&] { group.attach_device(); });
                    aborts.join();
                    expect_error(error, ErrorCode::kAborted, "enough");
                    expect(locked_pieces() == 0, "host memory is still locked");
                    expect(driver->take_blocks(0, 16, 1) == 16, "blocks are still taken");
                  });
}

TEST_CASE("after a call has failed no stream of another rank touches its memory, not of kernels that are late either") {
  const Settings late{{"FAKE_CUDA_LATE_US", "1000"}, {"FAKE_CUDA_LATE_US", "20000", 1}};
  for (int i = 0; i < 10; ++i) check_processes({device_group(3), ring_group(3)}, write_after_failure);
  for (int i = 0; i < 3; ++i) check_processes({device_group(3, "shm", late), ring_group(3, late)}, write_after_failure);
}

// The stream is that of a GPU whose context is broken: what is in it neither goes on nor ends.
TEST_CASE("a pass that never ends holds up neither the end of its call nor destroy") {
  if (on_a_gpu()) return;
  RankGroup ranks = registered_group(2);
  ranks.config.destroy_timeout_ms = 1'000;
  check_processes({ranks}, [](Communicator& comm) {
    Sum sum(comm, comm.allocate(1u << 20, Memory::kDevice), 1000);
    const int before = passes_over_ranks();
    if (comm.rank() == 0) setenv("FAKE_CUDA_PASS_US", "600000000", 1);
    Work work = sum.start();
    while (comm.rank() == 0 && passes_over_ranks() == before) std::this_thread::yield();
    if (comm.rank() == 0) comm.abort("enough");
    const auto since = Clock::now();
    expect_error(error_of([&] { work.wait(); }), ErrorCode::kAborted, "enough");
    comm.destroy();
    expect(Clock::now() - since < std::chrono::seconds(30), "the wait was too long");
    if (comm.rank() == 0) _exit(0);  // its stream is never empty
  });
}

// Nobody else sees the stream pass: progress threads are held up. Rank 0 leaves by its own thread, or by a function of
// on_end().
TEST_CASE("destroy() as soon as the stream has passed the last call: the others' call ends well") {
  struct Shared {
    std::atomic<int> leaves, waited;
  };
  for (const bool in_function : {false, true}) {
    CAPTURE(in_function);
    const OfAllProcesses<Shared> shared;
    check_processes({device_group(2, "shm", {{"FAKE_CUDA_QUEUES", "4"}})}, [&](Communicator& group) {
      Sum sum(group, group.allocate(1u << 20, Memory::kDevice), 1000);
      const Mirror other;
      const bool function_leaves = in_function && group.rank() == 0;
      std::atomic<int> held{0};
      std::atomic<bool> go_on{false};
      group.barrier_async().on_end([&](const Error&) {
        held = 1;
        while (!go_on) std::this_thread::yield();
        if (function_leaves) group.try_destroy();
        held = 2;
      });
      while (held == 0) std::this_thread::yield();
      Work work = sum.start();
      work.wait_on(other.stream());
      other.synchronize();  // the stream has passed it
      if (function_leaves) {
        shared->leaves = 1;
        go_on = true;
        while (held != 2) std::this_thread::yield();
        return;
      }
      if (group.rank() == 0) {
        std::thread releases([&] {
          while (shared->waited == 0) std::this_thread::yield();
          go_on = true;
        });
        shared->leaves = 1;
        group.destroy();
        releases.join();
        return;
      }
      while (shared->leaves == 0) std::this_thread::yield();
      // A goodbye would be here by then.
      const auto until = Clock::now() + std::chrono::milliseconds(300);
      while (Clock::now() < until) std::this_thread::yield();
      const Error error = error_of([&] { work.wait(); });
      shared->waited = 1;
      go_on = true;
      while (held != 2) std::this_thread::yield();
      expect_error(error, ErrorCode::kOk, "");
    });
  }
}

TEST_CASE("destroy() gives back what calls and messages have used, and what allocate() has given") {
  if (on_a_gpu()) return;  // a GPU does not count
  check_processes(both_ways(2), [](Communicator& group) {
    const Mirror opens;
    const int held = counted("fake_cuda_held"), locked = locked_pieces(), events = counted("fake_cuda_events");
    void* const memory = group.allocate(1u << 20, Memory::kDevice);
    expect(counted("fake_cuda_held") > held, "the device does not count");
    Work outlives;
    {
      Sum sum(group, nullptr, 100'000);
      outlives = sum.start();
      outlives.wait();
      const int peer = 1 - group.rank();
      group.sendrecv(sum.data(), 1000, peer, memory, 1000, peer, DType::kInt32, 0, sum.options());
      sum.mirror.synchronize();
    }
    group.destroy();
    expect(counted("fake_cuda_held") == held, "device memory is left");
    expect(locked_pieces() == locked, "locked memory is left");
    outlives = {};
    expect(counted("fake_cuda_events") == events, "events are left");
  });
}

TEST_CASE("memory of a call in flight is not given back") {
  RankGroup late = device_group(2);
  late.config.destroy_timeout_ms = 300;
  check_processes({late}, [](Communicator& group) {
    void* const memory = group.allocate(1u << 20, Memory::kDevice);
    Sum sum(group, memory, 1000);
    Work work;
    if (group.rank() == 0) {
      work = sum.start();
      const Error error = error_of([&] { group.deallocate(memory); });
      expect_error(error, ErrorCode::kInvalid, "calls on streams are under way");
    }
    group.send(nullptr, 0, DType::kInt8, 1 - group.rank());
    group.recv(nullptr, 0, DType::kInt8, 1 - group.rank());
    if (group.rank() == 1) work = sum.start();
    work.wait();
    expect(sum.value() == 2, "the wrong sum");
    group.deallocate(memory);
  });
}

TEST_CASE("memory that one rank alone has given back: an error on all, and nothing is touched") {
  check_processes({registered_group(2)}, [](Communicator& group) {
    void* const memory = group.allocate(1u << 20, Memory::kDevice);
    Sum sum(group, group.rank() == 0 ? memory : nullptr, 1000);
    if (group.rank() == 1) group.deallocate(memory);
    const Error error = error_of([&] {
      for (int i = 0; i < 100; ++i) sum.start().wait();
    });
    expect_error(error, ErrorCode::kProtocol, "deallocate() is for all ranks");
    sum.mirror.to_host();
  });
}

TEST_CASE("RONDO_CHECK looks at calls on streams: they are staged") {
  RankGroup checked = device_group(3);
  checked.config.check_results = "digest,finite";
  check_processes({checked}, [cases = all_shapes({3, {1237}, {1}})](Communicator& group) {
    run_on_device(group, cases, BufferKind::kOddRegistered, Taken::kStaged);
    Mirror mirror;
    std::pmr::vector<float> values(1000, 1, &mirror);
    if (group.rank() == 2) values[777] = std::numeric_limits<float>::infinity();
    mirror.to_device();
    void* const data = mirror.image(values.data());
    const Error error = error_of([&] {
      group.all_reduce_async(data, data, 1000, DType::kFloat32, Op::kSum, {.stream = mirror.stream()}).wait();
    });
    expect_error(error, ErrorCode::kNotFinite, "element 777 of the input of rank 2");
    mirror.synchronize();
  });
}

}  // namespace rondo::testing
