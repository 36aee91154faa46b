// Ranks whose devices share memory: every even collective runs as passes over the memory of all ranks, in the order of
// streams, from registered and from plain buffers and from both, and gives the reference result. Where a rank cannot
// share its memory, all ranks stage.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/device/island_cases.h"
#include "tests/support/temp_folder.h"

namespace rondo::testing {
namespace {

constexpr BufferKind kKinds[] = {BufferKind::kPlain, BufferKind::kRegistered, BufferKind::kOddRegistered};

}  // namespace

TEST_CASE("every collective on processes: registered, plain, and both") {
  for (const int world : {2, 3, 4}) {
    const auto cases = all_shapes({world, {1, uint64_t(world + 1), 1237}, {world / 2}});
    for (const BufferKind kind : kKinds) {
      CAPTURE(world);
      CAPTURE(static_cast<int>(kind));
      CHECK(run_processes(device_group(world, "shm"), [&](Communicator& group) { run_all(group, cases, kind); }) == "");
    }
  }
}

TEST_CASE("calls of many pieces") {
  const auto cases = large_shapes(3);
  for (const BufferKind kind : kKinds) {
    CAPTURE(static_cast<int>(kind));
    CHECK(run_processes(small_windows(3), [&](Communicator& group) { run_all(group, cases, kind); }) == "");
  }
}

TEST_CASE("every dtype with every op on registered memory") {
  const auto cases = all_reductions(3);
  CHECK(run_processes(device_group(3, "shm"),
                      [&](Communicator& group) { run_all(group, cases, BufferKind::kRegistered); }) == "");
}

TEST_CASE("many calls under way, each on the result of the one before, over two streams") {
  for (const bool staged : {false, true}) {
    CAPTURE(staged);
    const Settings queues{{"FAKE_CUDA_QUEUES", "4"}};  // of one, streams keep their order
    const RankGroup ranks = staged ? staged_group(2, "shm", queues) : device_group(2, "shm", queues);
    CHECK(run_processes(ranks, [](Communicator& group) {
            void* const memory = group.allocate(1u << 22, Memory::kDevice);
            Mirror mirror(memory, 1u << 22);
            DeviceStream other = nullptr;
            mirror.driver().make_stream(mirror.device(), &other);
            for (const size_t count : {1000, 700'000}) {
              std::pmr::vector<uint32_t> values(count, 1, &mirror);
              mirror.to_device();
              mirror.synchronize();
              uint32_t* const data = mirror.image_of(values.data());
              Work last;
              for (int i = 0; i < 200; ++i) {
                last = group.all_reduce_async(data, data, count, DType::kUint32, i % 10 == 0 ? Op::kSum : Op::kMax,
                                              {.stream = i % 5 == 4 ? other : mirror.stream()});
              }
              last.wait();
              mirror.to_host();
              mirror.synchronize();
              expect(values.front() == 1u << 20 && values.back() == 1u << 20, "the wrong sum");
            }
            mirror.driver().destroy_stream(other);
          }) == "");
  }
}

TEST_CASE("staged and enqueued calls, host calls and groups beside each other keep their order") {
  for (const char* transport : {"shm", "tcp"}) {
    CHECK(run_processes(device_group(4, transport), [](Communicator& group) {
            Communicator half = group.split(group.rank() % 2);
            void* const memory = group.allocate(1u << 20, Memory::kDevice);
            Mirror mirror(memory, 1u << 20);
            std::pmr::vector<int32_t> values(1000, 1, &mirror), all(1000, 1, &mirror);
            std::vector<int32_t> host(10, 1);
            mirror.to_device();
            const CallOptions options{.stream = mirror.stream()};
            void *const data = mirror.image(values.data()), *const of_all = mirror.image(all.data());
            std::vector<uint64_t> counts(4, 250);
            for (int i = 0; i < 5; ++i) {
              half.all_reduce(data, data, 1000, DType::kInt32, Op::kSum, options);
              group.barrier(options);
              group.all_reduce(of_all, of_all, 1000, DType::kInt32, Op::kSum, options);
              group.all_gather_v(static_cast<int32_t*>(of_all) + 250 * group.rank(), of_all, counts, {}, DType::kInt32,
                                 options);
              group.all_reduce(host);
            }
            mirror.to_host();
            mirror.synchronize();
            expect(values[999] == 32 && all[999] == 1024 && host[9] == 1024, "the wrong sum");
          }) == "");
  }
}

TEST_CASE("device memory: zeroed, of different sizes, given back, and again") {
  for (const bool staged : {false, true}) {
    CAPTURE(staged);
    CHECK(run_processes(staged ? staged_group(3) : device_group(3, "shm"), [](Communicator& group) {
            for (int i = 0; i < 3; ++i) {
              const size_t bytes = 4096u * static_cast<size_t>(group.rank() + i + 1);
              auto* const memory = static_cast<std::byte*>(group.allocate(bytes, Memory::kDevice));
              Mirror mirror;
              std::pmr::vector<std::byte> seen(bytes, std::byte{1}, &mirror);
              const DeviceCopy copy{seen.data(), memory, bytes, bytes, bytes, 1};
              expect(mirror.driver().copy(copy, mirror.stream()) == 0, "no copy");
              mirror.synchronize();
              for (const std::byte byte : seen) expect(byte == std::byte{0}, "memory that is not zeroed");
              const CallOptions options{.stream = mirror.stream()};
              group.all_reduce(memory, memory, 1024, DType::kInt32, Op::kSum, options);
              group.deallocate(memory);  // waits for the call
              expect_error(error_of([&] { group.deallocate(memory); }), ErrorCode::kInvalid, "no memory");
            }
            expect_error(error_of([&] { group.allocate(0, Memory::kDevice); }), ErrorCode::kInvalid, "0 bytes");
            const size_t most = group.rank() == 1 ? size_t{1} << 62 : 4096;
            const Error error = error_of([&] { group.allocate(most, Memory::kDevice); });
            expect_error(error, ErrorCode::kSystem, group.rank() == 1 ? "device memory" : "rank 1");
            group.deallocate(group.allocate(4096, Memory::kDevice));
          }) == "");
  }
}

TEST_CASE("one rank's device cannot share memory, windows are off, or the device runs one process: all ranks stage") {
  for (const std::string how : {"device", "setting", "process"}) {
    RankGroup group = device_group(3, "shm");
    if (how == "setting") group.config.device_window_bytes = 0;
    group.before = [&](int rank) {
      setenv("FAKE_CUDA_SHARES", how == "device" && rank == 1 ? "0" : "1", 1);
      setenv("FAKE_CUDA_MPS", how == "process" ? "0" : "1", 1);
    };
    if (on_a_gpu() && how != "setting") continue;  // a GPU is what it is
    const auto cases = all_shapes({3, {1237}, {1}});
    CHECK(run_processes(group, [&](Communicator& comm) {
            run_on_device(comm, cases, BufferKind::kOddRegistered);
            expect(passes_over_ranks() <= 0, "a call was not staged");
          }) == "");
  }
}

TEST_CASE(
    "CUDA IPC where descriptors do not exist, or are refused by one rank: passes, and memory given back in any order") {
  if (on_a_gpu()) return;  // a GPU is what it is
  for (const std::string how : {"FAKE_CUDA_SHARES", "FAKE_CUDA_IMPORTS"}) {
    CAPTURE(how);
    RankGroup group = device_group(3, "shm");
    const std::string value = how == "FAKE_CUDA_SHARES" ? std::to_string(kSharesByIpc) : "0";
    group.before = [&](int rank) {
      if (rank == 2) setenv(how.c_str(), value.c_str(), 1);
    };
    const auto cases = all_shapes({3, {1237}, {1}});
    CHECK(run_processes(group, [&](Communicator& comm) {
            run_all(comm, cases);
            std::vector<void*> memories;
            for (int i = 0; i < 4; ++i) memories.push_back(comm.allocate(1u << 20, Memory::kDevice));
            Sum sum(comm, memories[3], 1000);
            sum.start().wait();
            expect(sum.value() == 3, "the wrong sum");
            // Every rank lets go of them in an order of its own, and of the last one when it is destroyed.
            for (int i = 0; i < 3; ++i) comm.deallocate(memories[static_cast<size_t>((i + comm.rank()) % 3)]);
            if (comm.rank() == 0) comm.destroy();
          }) == "");
  }
}

TEST_CASE("a rank that dies while others map its memory by CUDA IPC") {
  if (on_a_gpu()) return;
  const RankGroup group = device_group(3, "shm", {{"FAKE_CUDA_SHARES", std::to_string(kSharesByIpc)}});
  CHECK(run_processes(group, [](Communicator& comm) {
          void* const memory = comm.allocate(1u << 20, Memory::kDevice);
          Sum sum(comm, memory, 1000);
          sum.start().wait();
          if (comm.rank() == 1) _exit(0);
          expect_error(error_of([&] { sum.start().wait(); }), ErrorCode::kPeerLost, "rank 1");
          sum.value();
          const auto begin = std::chrono::steady_clock::now();
          comm.destroy();
          expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(2), "destroy waits for the dead rank");
        }) == "");
}

TEST_CASE("lists are put together in the window, in pieces where it is small, of several types") {
  for (const uint64_t window : {uint64_t{64} * 1024, uint64_t{64} << 20}) {
    RankGroup group = device_group(3, "shm");
    group.config.device_window_bytes = window;
    CHECK(run_processes(group, [](Communicator& comm) {
            void* const memory = comm.allocate(1u << 20, Memory::kDevice);
            const int before = passes_over_ranks();
            for (const bool registered : {false, true}) {
              Mirror mirror(registered && comm.rank() == 0 ? memory : nullptr, 1u << 20);
              std::pmr::vector<float> first(3, 1, &mirror), second(70'000, 2, &mirror), last(1, 3, &mirror);
              std::pmr::vector<int64_t> other(1000, comm.rank(), &mirror);
              mirror.to_device();
              const auto tensor = [&](auto& values, DType dtype) {
                void* const data = mirror.image(values.data());
                return TensorRef{data, data, values.size(), dtype};
              };
              const TensorRef tensors[] = {tensor(first, DType::kFloat32), tensor(second, DType::kFloat32),
                                           tensor(other, DType::kInt64), tensor(last, DType::kFloat32)};
              const CallOptions options{.stream = mirror.stream()};
              comm.all_reduce_many(tensors, Op::kSum, options);
              comm.all_reduce_many_async(std::span(tensors).first(1), Op::kSum, options).wait();
              mirror.to_host();
              mirror.synchronize();
              expect(first[2] == 9 && second.front() == 6 && second.back() == 6 && last[0] == 9, "the wrong sum");
              expect(other.front() == 3 && other.back() == 3, "the wrong sum of integers");
            }
            expect(passes_over_ranks() != before || before < 0, "the lists were staged");
          }) == "");
  }
}

TEST_CASE("lists that differ: both are shown") {
  CHECK(run_processes(device_group(2, "shm"), [](Communicator& group) {
          group.attach_device();
          Mirror mirror;
          std::pmr::vector<float> values(100, 1, &mirror);
          mirror.to_device();
          auto* const data = static_cast<float*>(mirror.image(values.data()));
          const uint64_t second = group.rank() == 0 ? 10 : 11;
          const TensorRef tensors[] = {{data, data, 20}, {data + 50, data + 50, second}};
          const Error error =
              error_of([&] { group.all_reduce_many_async(tensors, Op::kSum, {.stream = mirror.stream()}).wait(); });
          expect_error(error, ErrorCode::kMismatch, "20, 10");
          expect_error(error, ErrorCode::kMismatch, "20, 11");
          mirror.synchronize();
        }) == "");
}

TEST_CASE("processes that use the device one at a time") {
  if (on_a_gpu()) return;
  const TempFolder folder;
  RankGroup group = device_group(3, "shm", {{"FAKE_CUDA_SLICES", folder.path("slices")}});
  const auto cases = all_shapes({3, {1237}, {1}});
  for (const Algorithm algorithm : {Algorithm::kAuto, Algorithm::kRing}) {
    group.config.algorithm = algorithm;
    CHECK(run_processes(group, [&](Communicator& comm) { run_all(comm, cases); }) == "");
  }
}

TEST_CASE("communicators share the blocks of a device: those that find none stage, and blocks are given back") {
  if (on_a_gpu()) return;  // a GPU has more
  CHECK(run_processes(device_group(2, "shm"), [](Communicator& group) {
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
        }) == "");
}

TEST_CASE("kernels that are late, of ranks that have failed, hold nobody up") {
  RankGroup group = device_group(3, "shm");
  group.before = [&](int rank) { setenv("FAKE_CUDA_LATE_US", rank == 1 ? "20000" : "1000", 1); };
  for (const Algorithm algorithm : {Algorithm::kAuto, Algorithm::kRing}) {
    group.config.algorithm = algorithm;
    for (int i = 0; i < 3; ++i) CHECK(run_processes(group, fail_between_passes) == "");
  }
}

TEST_CASE("after a call has failed no stream of another rank touches its memory") {
  RankGroup group = device_group(3, "shm");
  for (const Algorithm algorithm : {Algorithm::kAuto, Algorithm::kRing}) {
    group.config.algorithm = algorithm;
    for (int i = 0; i < 10; ++i) CHECK(run_processes(group, write_after_failure) == "");
  }
}

TEST_CASE("a failure between passes ends all calls, and the device goes on") {
  for (int i = 0; i < 5; ++i) CHECK(run_processes(device_group(3, "shm"), fail_between_passes) == "");
}

// Nobody sees the stream pass at once: progress threads are held up, and the function behind the call is late.
TEST_CASE("destroy() as soon as the stream has passed the last call: the others' call ends well") {
  if (on_a_gpu()) return;  // a GPU's functions are not late
  struct Shared {
    std::atomic<int> leaves, waited;
  };
  auto* const shared =
      static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  REQUIRE(shared != MAP_FAILED);
  const RankGroup ranks = device_group(2, "shm", {{"FAKE_CUDA_QUEUES", "4"}});
  CHECK(run_processes(ranks, [&](Communicator& group) {
          Sum sum(group, group.allocate(1u << 20, Memory::kDevice), 1000);
          const Mirror other;
          std::atomic<int> held{0};
          std::atomic<bool> go_on{false};
          group.barrier_async().on_end([&](const Error&) {
            held = 1;
            while (!go_on) std::this_thread::yield();
            held = 2;
          });
          while (held == 0) std::this_thread::yield();
          setenv("FAKE_CUDA_FUNCTION_US", "1000000", 1);
          Work work = sum.start();
          work.wait_on(other.stream());
          other.synchronize();  // the stream has passed it
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
          const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
          while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
          const Error error = error_of([&] { work.wait(); });
          shared->waited = 1;
          go_on = true;
          while (held != 2) std::this_thread::yield();
          expect_error(error, ErrorCode::kOk, "");
        }) == "");
  munmap(shared, sizeof(Shared));
}

TEST_CASE("destroy() gives back what calls and messages have used, and what allocate() has given") {
  if (on_a_gpu()) return;  // a GPU does not count
  for (const uint64_t window : {Config().device_window_bytes, uint64_t{0}}) {
    CAPTURE(window);
    RankGroup ranks = device_group(2, "shm");
    ranks.config.device_window_bytes = window;
    CHECK(run_processes(ranks, [](Communicator& group) {
            const Mirror opens;
            const int held = counted("fake_cuda_held"), locked = counted("fake_cuda_locked");
            void* const memory = group.allocate(1u << 20, Memory::kDevice);
            expect(counted("fake_cuda_held") > held, "the device does not count");
            {
              Sum sum(group, nullptr, 100'000);
              sum.start().wait();
              void* const data = sum.mirror.image(sum.values.data());
              const int peer = 1 - group.rank();
              const CallOptions options{.stream = sum.mirror.stream()};
              group.sendrecv(data, 1000, peer, memory, 1000, peer, DType::kInt32, 0, options);
              sum.mirror.synchronize();
            }
            group.destroy();
            expect(counted("fake_cuda_held") == held, "device memory is left");
            expect(counted("fake_cuda_locked") == locked, "locked memory is left");
          }) == "");
  }
}

TEST_CASE("memory of a call in flight is not given back") {
  RankGroup late = device_group(2, "shm");
  late.config.destroy_timeout_ms = 300;
  CHECK(run_processes(late, [](Communicator& group) {
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
        }) == "");
}

TEST_CASE("memory that one rank alone has given back: an error on all, and nothing is touched") {
  CHECK(run_processes(device_group(2, "shm"), [](Communicator& group) {
          void* const memory = group.allocate(1u << 20, Memory::kDevice);
          Sum sum(group, group.rank() == 0 ? memory : nullptr, 1000);
          if (group.rank() == 1) group.deallocate(memory);
          const Error error = error_of([&] {
            for (int i = 0; i < 100; ++i) sum.start().wait();
          });
          expect_error(error, ErrorCode::kProtocol, "deallocate() is for all ranks");
          sum.value();
        }) == "");
}

namespace {

// What has been captured in a stream, by the fake driver; none: a GPU has no such functions.
class Graph {
 public:
  explicit Graph(DeviceStream stream) : stream_(stream) {}
  bool record(const std::function<void()>& calls) {
    if (fake_function<bool(void*, int)>("fake_cuda_capture") == nullptr) return false;
    fake_function<bool(void*, int)>("fake_cuda_capture")(stream_, cuda::kCaptureGlobal);
    calls();
    expect(fake_function<bool(void*, int)>("fake_cuda_capture")(stream_, -1), "the capture is spoilt");
    return true;
  }
  void replay(DeviceStream stream) { fake_function<void(void*, void*)>("fake_cuda_replay")(stream_, stream); }

 private:
  DeviceStream stream_;
};

}  // namespace

TEST_CASE("a graph of calls: replayed, between other calls, on registered and plain buffers") {
  for (const Algorithm algorithm : {Algorithm::kAuto, Algorithm::kRing}) {
    RankGroup ranks = small_windows(3);
    ranks.config.algorithm = algorithm;
    CHECK(run_processes(ranks, [](Communicator& group) {
            Sum sum(group,
                    group.rank() == 0 ? group.allocate(1u << 20, Memory::kDevice)
                                      : (group.allocate(4096, Memory::kDevice), nullptr),
                    50'000);
            Mirror mirror;
            Graph graph(mirror.stream());
            void* const data = sum.mirror.image(sum.values.data());
            const CallOptions captured{.stream = mirror.stream()};
            if (!graph.record([&] {
                  group.all_reduce(data, data, 50'000, DType::kInt32, Op::kSum, captured);
                  group.broadcast(data, 50'000, DType::kInt32, 1, captured);
                  expect_error(error_of([&] { group.barrier(captured); }), ErrorCode::kUnsupported, "is staged");
                  expect_error(
                      error_of([&] { group.all_reduce_async(data, data, 50'000, DType::kInt32, Op::kSum, captured); }),
                      ErrorCode::kUnsupported, "without a Work");
                })) {
              return;
            }
            int32_t expected = 1;
            for (int round = 0; round < 4; ++round) {
              for (int replay = 0; replay <= round; ++replay, expected *= 3) graph.replay(sum.mirror.stream());
              sum.start();
              expected *= 3;
            }
            expect(sum.value() == expected && sum.values.front() == expected, "the wrong sum");
            sum.start().wait();
          }) == "");
  }
}

TEST_CASE("a replay that the other rank does not make ends by its deadline, and the next call says so") {
  CHECK(run_processes(device_group(2, "shm"), [](Communicator& group) {
          Sum sum(group, nullptr, 100);
          Graph graph(sum.mirror.stream());
          group.attach_device();
          void* const data = sum.mirror.image(sum.values.data());
          const CallOptions options{.timeout = std::chrono::milliseconds(100), .stream = sum.mirror.stream()};
          if (!graph.record([&] { group.all_reduce(data, data, 100, DType::kInt32, Op::kSum, options); })) return;
          if (group.rank() == 0) graph.replay(sum.mirror.stream());
          sum.mirror.synchronize();
          group.barrier();
          const Error error = error_of([&] { sum.start().wait(); });
          // Whichever rank is first: its own kernel was late, or the other's card is of another call.
          expect(error.message.find("have not met") != std::string::npos ||
                     error.message.find("in another operation") != std::string::npos,
                 error.message);
        }) == "");
}

TEST_CASE("RONDO_CHECK looks at calls on streams: they are staged") {
  RankGroup checked = device_group(3, "shm");
  checked.config.check_results = "digest,finite";
  const auto cases = all_shapes({3, {1237}, {1}});
  CHECK(run_processes(checked, [&](Communicator& group) {
          run_on_device(group, cases, BufferKind::kOddRegistered);
          expect(passes_over_ranks() <= 0, "a call was not staged");
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
        }) == "");
}

TEST_CASE("calls that differ in their root alone: nobody gets a result") {
  CHECK(run_processes(device_group(2, "shm"), [](Communicator& group) {
          group.attach_device();
          Mirror mirror;
          std::pmr::vector<int32_t> values(100, group.rank(), &mirror);
          mirror.to_device();
          const Error error = error_of([&] {
            group
                .broadcast_async(mirror.image(values.data()), 100, DType::kInt32, group.rank(),
                                 {.stream = mirror.stream()})
                .wait();
          });
          expect_error(error, ErrorCode::kMismatch, "root=1");
          mirror.synchronize();
        }) == "");
}

TEST_CASE("a stream of another device than the communicator's") {
  CHECK(run_processes(device_group(2, "shm"), [](Communicator& group) {
          group.attach_device();
          Mirror first;
          if (first.driver().use(1) != 0) return;  // a GPU may be alone
          Sum sum(group, nullptr, 100);
          first.driver().use(0);
          expect_error(error_of([&] { sum.start(); }), ErrorCode::kInvalid, "attached to device 0");
        }) == "");
}

}  // namespace rondo::testing
