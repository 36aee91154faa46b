#include "tests/device/probe.h"

#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>
#include <thread>

namespace rondo::testing {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

SharedWords::SharedWords() {
  const int file = memfd_create("rondo_probe", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, kBytes) != 0) throw std::runtime_error("memfd_create failed");
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
  memory_ = static_cast<uint32_t*>(memory);
  for (uint32_t value = 0; value < kValues; ++value) store(kFirstValue + value, value);
}

SharedWords::~SharedWords() { munmap(memory_, kBytes); }

Probe::Probe(const SharedWords& shared) : driver_(DeviceDriver::open(device_library())), words_(shared) {
  check(driver().current(&device_), "asking for the current device");
  const auto begin = Clock::now();
  driver().load_kernels(device_);
  load_ms_ = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  check(driver().lock_host(device_, words_.memory(), SharedWords::kBytes), "locking memory of memfd_create");
  values_ = static_cast<std::byte*>(allocate(SharedWords::kValues * SharedWords::kStride));
  const DeviceStream own = stream();
  copy(values_, words_.at(SharedWords::kFirstValue), SharedWords::kValues * SharedWords::kStride, own);
  check(driver().synchronize(own), "copying");
}

DeviceStream Probe::stream() const {
  DeviceStream made = nullptr;
  check(driver().make_stream(device_, &made), "making a stream");
  return made;
}

void* Probe::allocate(size_t bytes) const {
  void* memory = nullptr;
  check(driver().allocate(device_, bytes, &memory), "allocating device memory");
  return memory;
}

void Probe::copy(void* to, const void* from, size_t bytes, DeviceStream stream) const {
  check(driver().copy(whole(to, from, bytes), stream), "a copy");
}

void Probe::fold(DType dtype, Fold fold, std::vector<const void*> sources, void* target, size_t count,
                 DeviceStream stream) const {
  check(driver().fold(pass_of(dtype, fold, sources, {&target, 1}, count), stream), "a kernel");
}

// A stream that never passes still refers to the flag.
bool Probe::passes(DeviceStream stream, std::chrono::milliseconds limit) const {
  auto* const done = new std::atomic<bool>(false);
  check(driver().call_host([](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); }, done, stream),
        "a function in a stream");
  return eventually([&] { return done->load(); }, static_cast<int>(limit.count()));
}

bool returns_within(std::chrono::milliseconds limit, std::function<void()> function) {
  const auto done = std::make_shared<std::atomic<bool>>(false);  // shared with a thread that may outlive this
  std::thread([done, function = std::move(function)] {
    function();
    done->store(true);
  }).detach();
  return eventually([&] { return done->load(); }, static_cast<int>(limit.count()));
}

std::string run_probe(int processes, const std::function<void(const Probe& probe, int rank)>& body) {
  const SharedWords words;
  return run_bare_processes(processes, std::chrono::seconds(60), [&](int rank) {
    const Probe probe(words);
    body(probe, rank);
    std::fflush(stdout);
    _exit(0);  // what a stream still waits for ends with the process
  });
}

}  // namespace rondo::testing
