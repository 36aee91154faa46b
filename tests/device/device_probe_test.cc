// What the engine takes for granted of a device, a point a case, each in processes of its own: over the fake driver the
// cases themselves are tried; on a GPU they run before everything else (tools/gpu.sh) and print what they find.
// PROBE_MIB: of the large buffer, 16.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include "tests/device/probe.h"

namespace rondo::testing {
namespace {

// Host memory that the device reaches.
template <class T>
struct LockedVector {
  LockedVector(const Probe& probe, size_t count, T value) : of(probe), data(count, value) {
    of.check(of.driver().lock_host(of.device(), data.data(), count * sizeof(T)), "locking host memory");
  }
  ~LockedVector() { of.driver().unlock_host(data.data()); }
  const Probe& of;
  std::vector<T> data;
};

// A socket to hand a descriptor over: from process 0 to 1.
struct DescriptorPipe {
  DescriptorPipe() { REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0); }
  ~DescriptorPipe() {
    close(ends[0]);
    close(ends[1]);
  }
  void pass(int& descriptor, bool sends) {
    char byte = 0;
    iovec part{&byte, 1};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
    if (sends) {
      expect(sendmsg(ends[0], &message, 0) == 1, "the descriptor cannot be sent");
    } else {
      expect(recvmsg(ends[1], &message, 0) == 1 && message.msg_controllen > 0, "no descriptor came");
      std::memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    }
  }
  int ends[2] = {-1, -1};
};

// Entries of one kind that a stream takes behind a wait before who adds one has to wait, or 4,096.
int entries_taken(const Probe& probe, size_t word, const std::function<void(DeviceStream)>& add) {
  constexpr int kMost = 4096;
  const DeviceStream stream = probe.stream();
  const auto taken = std::make_shared<std::atomic<int>>(0);  // shared with the thread that adds
  probe.await(stream, word, 1);
  const bool all = returns_within(std::chrono::seconds(1), [=] {
    while (taken->load() < kMost && probe.words().load(word) == 0) {
      add(stream);
      taken->fetch_add(1);
    }
  });
  const int found = taken->load();
  probe.words().store(word, 1);
  expect(all || within(kPatience, [&] { return taken->load() > found; }), "who adds does not go on after the wait");
  expect(probe.passes(stream), "the entries do not run");
  return found;
}

// Two processes write and read each other's memory; releases: process 0 lets go first.
void share_memory(const Probe& probe, int rank, MemorySharing sharing, DescriptorPipe& pipe) {
  constexpr size_t kCount = 1'000'003, kBytes = kCount * sizeof(uint32_t);
  constexpr size_t kFilled = 1, kAnswered = 2, kRead = 3;
  const DeviceStream stream = probe.stream();
  LockedVector<uint32_t> values(probe, kCount, 0);
  void* memory = nullptr;
  int descriptor = -1;
  if (rank == 0) {
    probe.check(probe.driver().allocate_shared(probe.device(), kBytes, sharing, &memory, &descriptor),
                "making memory to share");
    void* again = nullptr;  // by another device of this process, where there is one
    probe.check(probe.driver().map_shared(probe.driver().count() - 1, descriptor, sharing, kBytes, &again),
                "mapping it");
    probe.check(probe.driver().release_shared(again), "unmapping it");
    std::iota(values.data.begin(), values.data.end(), 7u);
    probe.copy(memory, values.data.data(), kBytes, stream);
    expect(probe.passes(stream), "a copy into shared memory does not end");
  }
  pipe.pass(descriptor, rank == 0);
  if (rank == 1) {
    probe.check(probe.driver().map_shared(probe.device(), descriptor, sharing, kBytes, &memory),
                "mapping the other process's memory");
    void* const own = probe.allocate(kBytes);
    probe.await(stream, kFilled, 1);
    probe.fold(DType::kUint32, Fold::kSum, {memory, memory}, own, kCount, stream);
    probe.fold(DType::kUint32, Fold::kSum, {own}, memory, kCount, stream);
    probe.write(stream, kAnswered, 1);
    expect(probe.passes(stream), "kernels on the other process's memory do not end");
    expect(within(kPatience, [&] { return probe.words().load(kRead) == 1; }), "the other process does not go on");
    probe.copy(values.data.data(), memory, kBytes, stream);  // a descriptor's memory lives on
    expect(probe.passes(stream), "memory is gone that is still mapped");
    probe.check(probe.driver().release_shared(memory), "unmapping the other process's memory");
    probe.words().store(kRead, 2);
    return;
  }
  probe.write(stream, kFilled, 1);
  probe.await(stream, kAnswered, 1);
  probe.copy(values.data.data(), memory, kBytes, stream);
  expect(probe.passes(stream), "the other process's answer does not come");
  for (size_t i = 0; i < kCount; ++i)
    expect(values.data[i] == 2 * (i + 7), "the other process's kernel wrote otherwise");
  if (sharing == MemorySharing::kDescriptor) probe.driver().release_shared(memory);
  probe.words().store(kRead, 1);
  expect(within(kPatience, [&] { return probe.words().load(kRead) == 2; }), "the other process does not end");
  if (sharing == MemorySharing::kIpc) probe.check(probe.driver().release_shared(memory), "freeing shared memory");
}

}  // namespace

// The counts of the fake driver begin here, before processes are forked.
[[maybe_unused]] void* const counts = dlopen(device_library(), RTLD_NOW | RTLD_LOCAL);

// A driver that no process uses may stop, and start again for the next one.
TEST_CASE("hold the device open until the input ends" * doctest::skip()) {
  CHECK(run_bare_processes(1, std::chrono::minutes(15), [](int) {
          const SharedWords words;
          const Probe probe(words);
          while (std::getchar() != EOF) continue;
        }) == "");
}

TEST_CASE("01 the device") {
  CHECK(run_probe(1, [](const Probe& probe, int) {
          DeviceFacts facts{};
          probe.check(probe.driver().facts(probe.device(), &facts), "asking for the device's properties");
          report("%d devices; %d: %s, compute capability %d.%d, CUDA %d, %llu MiB", probe.driver().count(),
                 probe.device(), facts.name.c_str(), facts.major, facts.minor, facts.driver,
                 static_cast<unsigned long long>(facts.memory_bytes >> 20));
          report("loading the kernels took %.0f ms", probe.load_ms());
          report("memory by descriptors: %s, by CUDA IPC: %s; kernels of several processes at once (MPS): %s",
                 (facts.shares_memory & kSharesByDescriptor) != 0 ? "yes" : "NO",
                 (facts.shares_memory & kSharesByIpc) != 0 ? "yes" : "NO", facts.serves_processes ? "yes" : "NO");
        }) == "");
}

TEST_CASE("02 memory of memfd_create is locked, twice, and reached by copies and kernels") {
  CHECK(run_probe(1, [](const Probe& probe, int) {
          void* const host = probe.words().memory();
          const DeviceStream stream = probe.stream();
          probe.check(probe.driver().lock_host(probe.device(), host, SharedWords::kBytes), "locking it again");
          void* at_kernels = nullptr;
          probe.check(probe.driver().kernel_address(probe.device(), host, &at_kernels),
                      "asking where kernels reach it");
          auto* const device = static_cast<std::byte*>(probe.allocate(SharedWords::kBytes));
          constexpr size_t kHalf = SharedWords::kBytes / 2;
          for (size_t i = 0; i < 16; ++i) probe.words().store(i, static_cast<uint32_t>(100 + i));
          probe.copy(device, host, kHalf, stream);
          probe.fold(DType::kUint8, Fold::kSum, {device}, static_cast<std::byte*>(at_kernels) + kHalf, kHalf, stream);
          expect(probe.passes(stream), "a copy or a kernel does not end");
          for (size_t i = 0; i < 16; ++i) {
            expect(probe.words().load(kHalf / 64 + i) == 100 + i, "the kernel wrote otherwise");
          }
          probe.check(probe.driver().unlock_host(host), "unlocking it");
          probe.copy(device, host, kHalf, stream);
          expect(probe.passes(stream), "unlocked once of two times, it is gone");
        }) == "");
}

TEST_CASE("03 a stream's waits: >= as numbers that wrap") {
  CHECK(run_probe(1, [](const Probe& probe, int) {
          const SharedWords& words = probe.words();
          const DeviceStream stream = probe.stream();
          probe.write(stream, 1, 11);
          probe.await(stream, 2, 5);
          probe.write(stream, 3, 13);
          expect(within(kPatience, [&] { return words.load(1) == 11; }), "the copy before a wait does not come");
          words.store(2, 4);
          expect(!probe.passes(stream, kGlance) && words.load(3) == 0, "the stream did not wait");
          words.store(2, 6);
          expect(probe.passes(stream) && words.load(3) == 13, "the stream does not go on");

          words.store(4, 0xfffffff0u);
          probe.await(stream, 4, 3);
          expect(!probe.passes(stream, kGlance), "a wait compares without wrapping around");
          words.store(4, 3);
          expect(probe.passes(stream), "a wait that wraps around does not end");
          words.store(4, 5);
          probe.await(stream, 4, 0xfffffff0u);
          expect(probe.passes(stream), "a word beyond the wrap is not enough");
        }) == "");
}

TEST_CASE("04 beside a stream that waits: functions of the host, and the first launch of a kernel") {
  CHECK(run_probe(1, [](const Probe& probe, int) {
          const DeviceStream waiting = probe.stream(), other = probe.stream();
          void* const memory = probe.allocate(1 << 20);
          probe.copy(memory, probe.words().memory(), SharedWords::kBytes, other);
          expect(probe.passes(other), "a copy does not end");
          probe.await(waiting, 1, 1);
          const bool function = probe.passes(other, kGlance);
          const bool launch = returns_within(std::chrono::seconds(2), [&probe, memory, other] {
            probe.fold(DType::kFloat64, Fold::kMax, {memory, memory}, memory, 1000, other);
          });
          const bool kernel = launch && probe.passes(other, std::chrono::seconds(2));
          probe.words().store(1, 1);
          expect(probe.passes(waiting), "the wait does not end");
          report("functions of the host run: %s; a first launch returns: %s, runs: %s", function ? "yes" : "NO",
                 launch ? "yes" : "NO", kernel ? "yes" : "NO");
          if (std::getenv("RONDO_TEST_DEVICE") == nullptr) return;  // the fake one has one queue for all streams
          expect(function && launch && kernel, "a stream that waits holds up another one");
        }) == "");
}

TEST_CASE("05 beside a stream that waits: which calls of the runtime wait, too") {
  CHECK(run_probe(1, [](const Probe& probe, int) {
          const DeviceDriver& driver = probe.driver();
          const int device = probe.device();
          const DeviceStream waiting = probe.stream();
          std::vector<char> page(1 << 16);
          void* const old = probe.allocate(1 << 20);
          probe.await(waiting, 1, 1);
          const std::pair<const char*, std::function<void()>> calls[] = {
              {"make_stream", [&] { probe.stream(); }},
              {"make_event",
               [&] {
                 DeviceEvent event;
                 driver.make_event(device, &event);
               }},
              {"lock_host", [&] { driver.lock_host(device, page.data(), page.size()); }},
              {"allocate_shared",
               [&] {
                 void* memory;
                 int descriptor;
                 if (driver.allocate_shared(device, 1 << 20, MemorySharing::kDescriptor, &memory, &descriptor) == 0)
                   close(descriptor);
               }},
              {"allocate", [&] { probe.allocate(1 << 20); }},
              {"release", [&] { driver.release(device, old); }},
          };
          for (const auto& [name, call] : calls) {
            report("%s beside a stream that waits: %s", name,
                   returns_within(std::chrono::seconds(1), call) ? "returns" : "WAITS, too");
          }
          probe.words().store(1, 1);
          expect(probe.passes(waiting), "the wait does not end");
        }) == "");
}

TEST_CASE("06 entries that a stream takes while it waits") {
  CHECK(run_probe(1, [](const Probe& probe, int) {
          auto* const memory = static_cast<std::byte*>(probe.allocate(4096));
          const int copies = entries_taken(
              probe, 2, [&](DeviceStream stream) { probe.copy(memory, probe.words().memory(), 64, stream); });
          const int kernels = entries_taken(probe, 3, [&](DeviceStream stream) {
            probe.fold(DType::kUint8, Fold::kSum, {memory}, memory + 1024, 64, stream);
          });
          const int functions = entries_taken(
              probe, 4, [&](DeviceStream stream) { probe.driver().call_host([](void*) {}, nullptr, stream); });
          report("entries behind a wait (4096: no limit seen): %d copies, %d kernels, %d functions", copies, kernels,
                 functions);
          expect(std::min({copies, kernels, functions}) >= 512, "fewer than the 512 that calls may take");
        }) == "");
}

TEST_CASE("07 streams that run beside one that waits") {
  CHECK(run_probe(1, [](const Probe& probe, int) {
          constexpr size_t kStreams = 40;
          const DeviceStream waiting = probe.stream();
          std::vector<DeviceStream> streams;
          for (size_t i = 0; i < kStreams; ++i) streams.push_back(probe.stream());
          probe.await(waiting, 1, 1);
          for (size_t i = 0; i < kStreams; ++i) probe.write(streams[i], 100 + i, 1);
          const auto ran = [&] {
            size_t count = 0;
            for (size_t i = 0; i < kStreams; ++i) count += probe.words().load(100 + i);
            return count;
          };
          within(kGlance, [&] { return ran() == kStreams; });
          const char* const queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
          report("CUDA_DEVICE_MAX_CONNECTIONS %s: of %zu streams %zu run beside one that waits",
                 queues == nullptr ? "not set" : queues, kStreams, ran());
          probe.words().store(1, 1);
          expect(within(kPatience, [&] { return ran() == kStreams; }), "streams do not go on");
        }) == "");
}

TEST_CASE("08 the legacy stream waits: a non-blocking stream goes on") {
  CHECK(run_probe(1, [](const Probe& probe, int) {
          probe.stream();  // the fake device's first stream shares a queue with the legacy stream
          const DeviceStream other = probe.stream();
          probe.await(nullptr, 1, 1);
          const bool beside = probe.passes(other, std::chrono::seconds(1));
          probe.words().store(1, 1);
          expect(probe.passes(nullptr), "the legacy stream does not go on");
          report("a non-blocking stream beside the legacy stream that waits: %s", beside ? "runs" : "WAITS");
          if (std::getenv("RONDO_TEST_DEVICE") != nullptr) expect(beside, "a non-blocking stream waits for it");
        }) == "");
}

TEST_CASE("09 memory of one process mapped by another: by descriptors") {
  DescriptorPipe pipe;
  CHECK(run_probe(2, [&](const Probe& probe, int rank) {
          share_memory(probe, rank, MemorySharing::kDescriptor, pipe);
        }) == "");
}

TEST_CASE("10 memory of one process mapped by another: by CUDA IPC") {
  DescriptorPipe pipe;
  CHECK(run_probe(2, [&](const Probe& probe, int rank) { share_memory(probe, rank, MemorySharing::kIpc, pipe); }) ==
        "");
}

TEST_CASE("11 a large buffer") {
  CHECK(run_probe(1, [](const Probe& probe, int) {
          const char* const mebibytes = std::getenv("PROBE_MIB");
          const uint64_t bytes = (mebibytes == nullptr ? uint64_t{16} << 20 : std::stoull(mebibytes) << 20) + 12;
          const DeviceStream stream = probe.stream();
          auto* const from = static_cast<std::byte*>(probe.allocate(bytes));
          auto* const to = static_cast<std::byte*>(probe.allocate(bytes));
          LockedVector<uint32_t> end(probe, 4, 0x12345678u);
          probe.copy(from + bytes - 16, end.data.data(), 16, stream);
          probe.fold(DType::kUint32, Fold::kMax, {from, from}, to, bytes / 4, stream);
          probe.copy(from, to, bytes, stream);
          expect(probe.passes(stream), "it does not end");
          std::fill(end.data.begin(), end.data.end(), 0u);
          probe.copy(end.data.data(), from + bytes - 16, 16, stream);
          expect(probe.passes(stream) && end.data[0] == 0x12345678u && end.data[3] == 0x12345678u,
                 "the last bytes differ");
          report("%llu bytes: right", static_cast<unsigned long long>(bytes));
        }) == "");
}

// After all others of this program, device_driver_test.cc's too: its processes count together.
TEST_CASE("12 every function of the driver that is used has run") {
  void* const driver = dlopen(device_library(), RTLD_NOW | RTLD_NOLOAD);
  const auto uncalled = reinterpret_cast<const char* (*)()>(dlsym(driver, "fake_cuda_uncalled"));
  if (uncalled == nullptr) return;  // a GPU does not tell
  CHECK(std::string(uncalled() == nullptr ? "" : uncalled()) == "");
}

}  // namespace rondo::testing
