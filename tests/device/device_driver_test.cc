// DeviceDriver does what CUDA asks for: contexts and captures are left as they were, large pitches are copied row by
// row, streams are known by their ids, what is opened is closed; and every function of the driver that it uses has run
// here. Over the fake driver alone.
#include "kernels/device/device_driver.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "rondo/error.h"
#include "tests/support/fake_cuda/mirror.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

// In a process of its own, whose settings they are: "" or what was wrong. Not on a GPU.
std::string in_process(const std::vector<std::pair<const char*, const char*>>& settings,
                       const std::function<void(const DeviceDriver& driver)>& body) {
  if (on_a_gpu()) return "";
  return run_bare_processes(1, std::chrono::seconds(60), [&](int) {
    for (const auto& [name, value] : settings) setenv(name, value, 1);
    body(*DeviceDriver::open(device_library()));
    _exit(0);
  });
}

bool active(int device) { return fake_function<int(int)>("fake_cuda_active")(device) != 0; }
bool capture(DeviceStream stream, int mode) {
  return fake_function<bool(void*, int)>("fake_cuda_capture")(stream, mode);
}
bool end_capture(DeviceStream stream) { return capture(stream, -1); }

struct Locked {
  explicit Locked(const DeviceDriver& of) : driver(of) {
    expect(driver.lock_host(1, bytes, sizeof bytes) == 0, "lock_host");
  }
  ~Locked() { driver.unlock_host(bytes); }
  const DeviceDriver& driver;
  alignas(4096) unsigned char bytes[4096] = {};
};

// All that goes through a stream of device 1.
void use_all(const DeviceDriver& driver, DeviceStream stream) {
  Locked host(driver);
  uint32_t& word = *reinterpret_cast<uint32_t*>(host.bytes + 2048);
  void *memory = nullptr, *at_kernels = nullptr;
  DeviceEvent event = nullptr;
  StreamFacts facts{};
  PointerFacts where{};
  driver.load_kernels(1);
  expect(driver.stream_facts(stream, &facts) == 0 && facts.device == 1 && !facts.capturing, "stream_facts");
  expect(driver.allocate(1, 4096, &memory) == 0, "allocate");
  expect(driver.pointer_facts(1, memory, &where) == 0 && where.device == 1, "pointer_facts");
  expect(driver.kernel_address(1, host.bytes, &at_kernels) == 0, "kernel_address");
  expect(driver.make_event(1, &event) == 0 && driver.record(event, stream) == 0, "record");
  expect(driver.wait(stream, event) == 0, "wait");
  auto* const bytes = static_cast<unsigned char*>(memory);
  for (int i = 0; i < 64; ++i) host.bytes[i] = static_cast<unsigned char>(i);
  expect(driver.copy(whole(bytes, host.bytes, 64), stream) == 0, "copy");
  const void* const sources[] = {bytes, bytes};
  void* const target = bytes + 64;
  expect(driver.fold(pass_of(DType::kUint8, Fold::kSum, sources, {&target, 1}, 64), stream) == 0, "fold");
  expect(driver.copy({host.bytes, bytes + 64, 32, 48, 16, 2}, stream) == 0, "copy of rows");
  word = 7;
  expect(driver.await(&word, 7, stream) == 0, "await");
  bool called = false;
  expect(driver.call_host([](void* flag) { *static_cast<bool*>(flag) = true; }, &called, stream) == 0, "call_host");
  DeviceEvent timed[2] = {};
  double seconds = -1;
  for (DeviceEvent& one : timed) {
    expect(driver.make_event(1, &one, DeviceDriver::Timed::kYes) == 0 && driver.record(one, stream) == 0, "timed");
  }
  expect(driver.broken(stream) == 0 && driver.synchronize(stream) == 0, "synchronize");
  expect(driver.elapsed(1, event, timed[1], &seconds) == cuda::kInvalidHandle, "an event without a time");
  expect(driver.elapsed(1, timed[0], timed[1], &seconds) == 0 && seconds >= 0 && seconds < 60, "elapsed");
  for (DeviceEvent one : timed) driver.destroy_event(1, one);
  expect(called && host.bytes[15] == 30 && host.bytes[32] == 96 && host.bytes[47] == 126, "wrong bytes");
  expect(driver.destroy_event(1, event) == 0 && driver.release(1, memory) == 0, "release");
}

}  // namespace

TEST_CASE("every kind of stream; what has been opened is closed") {
  CHECK(in_process({}, [](const DeviceDriver& driver) {
          DeviceFacts facts{};
          int device = -1;
          DeviceStream stream = nullptr;
          expect(driver.count() == 2 && driver.facts(1, &facts) == 0 && facts.uuid.bytes[0] == 2, "facts");
          expect(driver.use(1) == 0 && driver.current(&device) == 0 && device == 1, "use");
          expect(driver.error_text(cuda::kOutOfMemory) == "out of memory", "error_text");
          expect(driver.make_stream(1, &stream) == 0, "make_stream");
          use_all(driver, stream);
          use_all(driver, nullptr);
          use_all(driver, reinterpret_cast<DeviceStream>(cuda::kStreamPerThread));
          expect(driver.destroy_stream(stream) == 0, "destroy_stream");
          expect(counted("fake_cuda_held") + counted("fake_cuda_locked") + counted("fake_cuda_events") == 0,
                 "something is left");
        }) == "");
}

TEST_CASE("a stream of another device than the current one: no context is made or changed beside its own") {
  for (const bool has_current : {false, true}) {
    CAPTURE(has_current);
    CHECK(in_process({{"FAKE_CUDA_COUNT", "3"}}, [=](const DeviceDriver& driver) {
            DeviceStream stream = nullptr;
            int before = -1, after = -1;
            if (has_current) expect(driver.use(2) == 0, "use");
            driver.current(&before);
            expect(driver.make_stream(1, &stream) == 0, "make_stream");
            use_all(driver, stream);
            driver.current(&after);
            expect(before == after && before == (has_current ? 2 : 0), "the current context has changed");
            expect(!active(0), "there is a context on device 0");
            expect(active(1) && active(2) == has_current, "contexts");
          }) == "");
  }
}

TEST_CASE("captures go on: of another thread, in every mode, and of this one") {
  for (const auto mode : {cuda::kCaptureGlobal, cuda::kCaptureThreadLocal, cuda::kCaptureRelaxed}) {
    for (const bool same_thread : {false, true}) {
      CAPTURE(mode);
      CAPTURE(same_thread);
      CHECK(in_process({}, [=](const DeviceDriver& driver) {
              DeviceStream captured = nullptr, stream = nullptr;
              driver.use(1);
              expect(driver.make_stream(1, &captured) == 0 && driver.make_stream(1, &stream) == 0, "make_stream");
              const auto begin = [&] { capture(captured, mode); };
              same_thread ? begin() : std::thread(begin).join();
              use_all(driver, stream);
              StreamFacts facts{};
              expect(driver.stream_facts(captured, &facts) == 0 && facts.capturing, "it is not captured");
              expect(end_capture(captured), "the capture is spoilt");
            }) == "");
    }
  }
}

TEST_CASE("what a graph keeps goes with it, by a thread of the program's") {
  CHECK(in_process({}, [](const DeviceDriver& driver) {
          DeviceStream captured = nullptr;
          StreamFacts facts{};
          expect(driver.make_stream(0, &captured) == 0, "make_stream");
          expect(driver.stream_facts(captured, &facts) == 0 && facts.graph == nullptr, "a graph without a capture");
          capture(captured, cuda::kCaptureGlobal);
          expect(driver.stream_facts(captured, &facts) == 0 && facts.graph != nullptr, "no graph");
          const uint64_t first = facts.id;
          auto kept = std::make_shared<int>(1);
          expect(driver.keep_in_graph(facts.graph, kept) == 0 && kept.use_count() == 2, "keep_in_graph");
          expect(end_capture(captured), "the capture is spoilt");
          driver.free_ended();
          expect(kept.use_count() == 2, "it went before its graph");
          capture(captured, cuda::kCaptureGlobal);  // the first graph is gone
          expect(kept.use_count() == 2, "CUDA's own thread frees it");
          driver.free_ended();
          expect(kept.use_count() == 1, "it is kept for a graph that is gone");
          expect(driver.stream_facts(captured, &facts) == 0 && facts.id != first, "two captures have one id");
          expect(driver.keep_in_graph(nullptr, kept) == cuda::kInvalidValue, "no graph keeps it");
          driver.free_ended();
          expect(end_capture(captured) && kept.use_count() == 1, "it is kept for no graph");
        }) == "");
}

TEST_CASE("the legacy stream beside a capture of a blocking stream") {
  CHECK(in_process({}, [](const DeviceDriver& driver) {
          driver.use(0);
          DeviceStream const blocking = fake_function<void*(int)>("fake_cuda_blocking_stream")(0);
          capture(blocking, cuda::kCaptureGlobal);
          StreamFacts facts{};
          expect(driver.stream_facts(nullptr, &facts) == 0 && facts.capturing, "work would be put into it");
          expect(end_capture(blocking), "the capture is spoilt");
        }) == "");
}

TEST_CASE("rows whose pitch is beyond what the driver copies") {
  for (const auto& [setting, pitch] :
       std::vector<std::pair<const char*, uint64_t>>{{"2147483647", uint64_t{1} << 31}, {"100", 128}}) {
    CHECK(in_process({{"FAKE_CUDA_MAX_PITCH", setting}}, [pitch = pitch](const DeviceDriver& driver) {
            Locked host(driver);
            DeviceStream stream = nullptr;
            void* memory = nullptr;
            expect(driver.make_stream(0, &stream) == 0, "make_stream");
            expect(driver.allocate(0, 2 * pitch + 16, &memory) == 0, "allocate");
            for (int i = 0; i < 48; ++i) host.bytes[i] = static_cast<unsigned char>(i + 1);
            expect(driver.copy({memory, host.bytes, pitch, 16, 16, 3}, stream) == 0, "copy there");
            expect(driver.copy({host.bytes + 64, memory, 16, pitch, 16, 3}, stream) == 0, "copy back");
            expect(driver.synchronize(stream) == 0, "synchronize");
            expect(std::memcmp(host.bytes, host.bytes + 64, 48) == 0, "the rows differ");
          }) == "");
  }
}

TEST_CASE("streams by their ids: the per-thread default stream is another one in each thread, and handles come again") {
  CHECK(in_process({}, [](const DeviceDriver& driver) {
          const auto id_of = [&](DeviceStream stream) {
            StreamFacts facts{};
            expect(driver.stream_facts(stream, &facts) == 0, "stream_facts");
            return facts.id;
          };
          auto* const own = reinterpret_cast<DeviceStream>(cuda::kStreamPerThread);
          driver.use(0);
          const uint64_t here = id_of(own), legacy = id_of(nullptr);
          uint64_t there = here;
          std::thread([&] {
            driver.use(0);
            there = id_of(own);
          }).join();
          driver.use(1);
          expect(here != there && here != legacy && legacy != id_of(nullptr), "two streams have one id");
          DeviceStream first = nullptr, second = nullptr;
          expect(driver.make_stream(0, &first) == 0, "make_stream");
          const uint64_t before = id_of(first);
          expect(driver.destroy_stream(first) == 0 && driver.make_stream(0, &second) == 0, "make_stream");
          expect(before != id_of(second), "a new stream has the id of an old one");
        }) == "");
}

TEST_CASE("an error that stays is found without a wait") {
  CHECK(in_process({}, [](const DeviceDriver& driver) {
          DeviceStream stream = nullptr;
          expect(driver.make_stream(0, &stream) == 0 && driver.broken(stream) == 0, "make_stream");
          fake_function<void(int)>("fake_cuda_break")(0);
          expect(driver.broken(stream) == cuda::kIllegalAddress, "it is not found");
          try {
            driver.check(driver.synchronize(stream), "waiting");
            expect(false, "it is not told");
          } catch (const Exception& error) {
            expect(error.code() == ErrorCode::kSystem &&
                       std::string(error.what()).find("an illegal memory access") != std::string::npos,
                   error.what());
          }
        }) == "");
}

}  // namespace rondo::testing
