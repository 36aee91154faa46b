// What the engine takes for granted of a device, a point a case, each in processes of its own: over the fake driver the
// cases themselves are tried; on a GPU they run before everything else (tests/device/gpu.sh) and print what they find.
// PROBE_MIB: of the large buffer, 16.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory_resource>
#include <numeric>
#include <span>

#include "tests/device/probe.h"
#include "transport/island/island_socket.h"

namespace rondo::testing {
namespace {

// A socket to hand a descriptor over: from process 0 to 1.
struct DescriptorPipe {
  DescriptorPipe() { REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends) == 0); }
  ~DescriptorPipe() {
    for (const int end : ends) close(end);
  }
  void send(int descriptor) const {
    std::string why;
    expect(send_message(ends[0], "d", 1, std::span(&descriptor, 1), why) == Sent::kYes, why);
  }
  Descriptor receive() const {
    std::vector<Descriptor> got;
    std::string why = "no descriptor came";
    char byte = 0;
    const auto comes = [&] { return receive_message(ends[1], &byte, 1, got, why) == Received::kYes; };
    expect(eventually(comes) && got.size() == 1, why);
    return std::move(got[0]);
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
  expect(all || eventually([&] { return taken->load() > found; }), "who adds does not go on after the wait");
  expect(probe.passes(stream), "the entries do not run");
  return found;
}

// Two processes write and read each other's memory. Process 0 makes it, and releases it first.
constexpr size_t kCount = 1'000'003, kBytes = kCount * sizeof(uint32_t);
constexpr size_t kFilled = 1, kAnswered = 2, kRead = 3;

void make_shared_memory(const Probe& probe, const DescriptorPipe& pipe) {
  const DeviceDriver& driver = probe.driver();
  const DeviceStream stream = probe.stream();
  Mirror mirror;
  std::pmr::vector<uint32_t> values(kCount, 0, &mirror);
  void *memory = nullptr, *again = nullptr;
  int descriptor = -1;
  probe.check(driver.allocate_shared(probe.device(), kBytes, &memory, &descriptor), "making memory to share");
  // By another device of this process, where there is one.
  probe.check(driver.map_shared(driver.count() - 1, descriptor, kBytes, &again), "mapping it");
  probe.check(driver.release_shared(again), "unmapping it");
  std::iota(values.begin(), values.end(), 7u);
  probe.copy(memory, values.data(), kBytes, stream);
  expect(probe.passes(stream), "a copy into shared memory does not end");
  pipe.send(descriptor);
  probe.write(stream, kFilled, 1);
  probe.await(stream, kAnswered, 1);
  probe.copy(values.data(), memory, kBytes, stream);
  expect(probe.passes(stream), "the other process's answer does not come");
  for (size_t i = 0; i < kCount; ++i) expect(values[i] == 2 * (i + 7), "the other process's kernel wrote otherwise");
  probe.check(driver.release_shared(memory), "releasing shared memory");
  probe.words().store(kRead, 1);
  expect(eventually([&] { return probe.words().load(kRead) == 2; }), "the other process does not end");
}

void use_shared_memory(const Probe& probe, const DescriptorPipe& pipe) {
  const DeviceStream stream = probe.stream();
  Mirror mirror;
  std::pmr::vector<uint32_t> values(kCount, 0, &mirror);
  void* memory = nullptr;
  const Descriptor descriptor = pipe.receive();
  probe.check(probe.driver().map_shared(probe.device(), descriptor.get(), kBytes, &memory),
              "mapping the other process's memory");
  void* const own = probe.allocate(kBytes);
  probe.await(stream, kFilled, 1);
  probe.fold(DType::kUint32, Fold::kSum, {memory, memory}, own, kCount, stream);
  probe.fold(DType::kUint32, Fold::kSum, {own}, memory, kCount, stream);
  probe.write(stream, kAnswered, 1);
  expect(probe.passes(stream), "kernels on the other process's memory do not end");
  expect(eventually([&] { return probe.words().load(kRead) == 1; }), "the other process does not go on");
  probe.copy(values.data(), memory, kBytes, stream);
  expect(probe.passes(stream), "memory is gone that is still mapped");
  probe.check(probe.driver().release_shared(memory), "unmapping the other process's memory");
  probe.words().store(kRead, 2);
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
          report("memory by descriptors: %s; kernels of several processes at once (MPS): %s",
                 facts.shares_memory ? "yes" : "NO", facts.serves_processes ? "yes" : "NO");
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
          expect(eventually([&] { return words.load(1) == 11; }), "the copy before a wait does not come");
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
          if (!on_a_gpu()) return;  // the fake one has one queue for all streams
          expect(function && launch && kernel, "a stream that waits holds up another one");
        }) == "");
}

TEST_CASE("05 entries that a stream takes while it waits") {
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

TEST_CASE("06 the legacy stream waits: a non-blocking stream goes on") {
  CHECK(run_probe(1, [](const Probe& probe, int) {
          probe.stream();  // the fake device's first stream shares a queue with the legacy stream
          const DeviceStream other = probe.stream();
          probe.await(nullptr, 1, 1);
          const bool beside = probe.passes(other, std::chrono::seconds(1));
          probe.words().store(1, 1);
          expect(probe.passes(nullptr), "the legacy stream does not go on");
          report("a non-blocking stream beside the legacy stream that waits: %s", beside ? "runs" : "WAITS");
          if (on_a_gpu()) expect(beside, "a non-blocking stream waits for it");
        }) == "");
}

TEST_CASE("07 memory of one process mapped by another") {
  const DescriptorPipe pipe;
  CHECK(run_probe(2, [&](const Probe& probe, int rank) {
          (rank == 0 ? make_shared_memory : use_shared_memory)(probe, pipe);
        }) == "");
}

TEST_CASE("08 a large buffer") {
  CHECK(run_probe(1, [](const Probe& probe, int) {
          const char* const mebibytes = std::getenv("PROBE_MIB");
          const uint64_t bytes = (mebibytes == nullptr ? uint64_t{16} << 20 : std::stoull(mebibytes) << 20) + 12;
          const DeviceStream stream = probe.stream();
          auto* const from = static_cast<std::byte*>(probe.allocate(bytes));
          auto* const to = static_cast<std::byte*>(probe.allocate(bytes));
          Mirror mirror;
          std::pmr::vector<uint32_t> end(4, 0x12345678u, &mirror);
          probe.copy(from + bytes - 16, end.data(), 16, stream);
          probe.fold(DType::kUint32, Fold::kMax, {from, from}, to, bytes / 4, stream);
          probe.copy(from, to, bytes, stream);
          expect(probe.passes(stream), "it does not end");
          std::ranges::fill(end, 0u);
          probe.copy(end.data(), from + bytes - 16, 16, stream);
          expect(probe.passes(stream) && end[0] == 0x12345678u && end[3] == 0x12345678u, "the last bytes differ");
          report("%llu bytes: right", static_cast<unsigned long long>(bytes));
        }) == "");
}

// After all others of this program, device_driver_test.cc's too: its processes count together.
TEST_CASE("09 every function of the driver that is used has run") {
  const auto uncalled = fake_function<const char*()>("fake_cuda_uncalled");
  if (uncalled == nullptr) return;  // a GPU does not tell
  CHECK(std::string(uncalled() == nullptr ? "" : uncalled()) == "");
}

}  // namespace rondo::testing
