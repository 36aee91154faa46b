#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>

namespace rondo::testing {

// The queue of a device that several streams share: entries run one after the other on a thread, in the order in which
// they came, whatever their stream. An entry that waits holds up all streams, as on a GPU with one hardware queue; so
// does one whose stream still runs a kernel. Kernels of several streams run at once. Who adds an entry to a full queue
// waits. With FAKE_CUDA_SLICES (a file) processes run entries one at a time. A queue lives as long as the process.
// Any thread.
class FakeQueue {
 public:
  // About what a GPU's queue of launches holds.
  static constexpr size_t kMostEntries = 1024;

  FakeQueue();
  FakeQueue(const FakeQueue&) = delete;

  enum class Entry { kKernel, kOther };
  void add(const void* stream, std::function<void()> function, Entry kind);
  // How much the stream has got so far, and whether so much has run.
  uint64_t added(const void* stream);
  bool has_run(const void* stream, uint64_t count);
  // Until what the stream has got so far has run.
  void synchronize(const void* stream);
  // Until what all streams have got so far has run.
  void synchronize_all();
  // The calling thread runs an entry, or one of CUDA's own functions: these must not use the device.
  static bool in_entry();
  static void run_as_entry(const std::function<void()>& function);
  // By an entry that waits: pauses, without its slice of the device.
  static void let_others_run(std::chrono::microseconds pause);

 private:
  [[noreturn]] void run();
  void run_entry(const void* stream, const std::function<void()>& function);

  struct Count {
    uint64_t added = 0, done = 0;
    bool runs_kernel = false;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  struct Added {
    const void* stream;
    std::function<void()> function;
    Entry kind;
  };
  std::deque<Added> entries_;
  std::map<const void*, Count> streams_;
  int kernels_ = 0;
};

}  // namespace rondo::testing
