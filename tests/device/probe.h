#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device/device_driver.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_cuda/mirror.h"
#include "tests/support/rank_group.h"

// For the probes of a device (tests/device/gpu.sh): one process or two, which look at one point through DeviceDriver.
// Every wait of the host has an end, so that what a device lacks is a line and no hang.
namespace rondo::testing {

constexpr std::chrono::seconds kPatience{10};
// For what must not happen, or may take a while.
constexpr std::chrono::milliseconds kGlance{200};

// A line of the report, at once.
template <class... Arguments>
void report(const char* format, Arguments... arguments) {
  std::printf("probe ");
  std::printf(format, arguments...);
  std::printf("\n");
  std::fflush(stdout);
}

// Words that forked processes share, in memory of memfd_create as the engine's.
class SharedWords {
 public:
  static constexpr size_t kBytes = 64 * 1024, kStride = 64;  // a cache line each
  static constexpr size_t kFirstValue = 1000, kValues = 24;  // words that say 0, 1, 2, ...
  SharedWords();
  ~SharedWords();
  SharedWords(const SharedWords&) = delete;
  uint32_t* at(size_t index) const { return memory_ + index * kStride / sizeof(uint32_t); }
  uint32_t load(size_t index) const { return std::atomic_ref<uint32_t>(*at(index)).load(); }
  void store(size_t index, uint32_t value) const { std::atomic_ref<uint32_t>(*at(index)).store(value); }
  void* memory() const { return memory_; }

 private:
  uint32_t* memory_ = nullptr;
};

// The current device of this process, opened, with the words locked.
class Probe {
 public:
  explicit Probe(const SharedWords& shared);
  const DeviceDriver& driver() const { return *driver_; }
  int device() const { return device_; }
  const SharedWords& words() const { return words_; }
  double load_ms() const { return load_ms_; }  // what loading the kernels took
  void check(DeviceStatus status, const char* what) const { driver_->check(status, what); }
  DeviceStream stream() const;
  void* allocate(size_t bytes) const;

  // In the stream: copies a value below kValues to the word, or waits until it is at least the value. From device
  // memory: for a copy from host to host the caller waits until the stream has come to it.
  void write(DeviceStream stream, size_t word, uint32_t value) const {
    copy(words_.at(word), values_ + value * SharedWords::kStride, sizeof value, stream);
  }
  void await(DeviceStream stream, size_t word, uint32_t value) const {
    check(driver().await(words_.at(word), value, stream), "a stream's wait");
  }
  void copy(void* to, const void* from, size_t bytes, DeviceStream stream) const;
  void fold(DType dtype, Fold fold, std::vector<const void*> sources, void* target, size_t count,
            DeviceStream stream) const;
  // Whether all that the stream has now is done within the time.
  bool passes(DeviceStream stream, std::chrono::milliseconds limit = kPatience) const;

 private:
  std::shared_ptr<const DeviceDriver> driver_;
  int device_ = 0;
  const SharedWords& words_;
  std::byte* values_ = nullptr;  // of the words, in device memory
  double load_ms_ = 0;
};

// Runs the function on a thread; whether it has returned by then. A thread that hangs is left behind.
bool returns_within(std::chrono::milliseconds limit, std::function<void()> function);

// body(probe, rank) on forked processes: "" or what was wrong. They are killed after a minute.
std::string run_probe(int processes, const std::function<void(const Probe& probe, int rank)>& body);

}  // namespace rondo::testing
