#pragma once

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/cases.h"
#include "tests/support/fake_cuda/mirror.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {

// Ranks with a fake device each, or, as threads, one of all. settings: of the fake driver, for processes.
using Settings = std::vector<std::pair<const char*, std::string>>;
RankGroup device_group(int world, const char* transport, const Settings& settings = {});
// The same, which stage all calls.
inline RankGroup staged_group(int world, const char* transport = "shm", const Settings& settings = {}) {
  RankGroup group = device_group(world, transport, settings);
  group.config.device_window_bytes = 0;
  return group;
}
// A GPU is what it is, and does what it does.
inline bool on_a_gpu() { return std::getenv("RONDO_TEST_DEVICE") != nullptr; }

// Where the buffers of a case lie: in device memory of their own, or in memory of Communicator::allocate() on all ranks
// or on those of odd number.
enum class BufferKind : uint8_t { kPlain, kRegistered, kOddRegistered };

// Runs the cases on device memory on this rank, one after the other; throws what is wrong. Nothing but the stream waits
// for a call.
void run_on_device(Communicator& group, const std::vector<CollectiveCase>& cases,
                   BufferKind buffers = BufferKind::kPlain);

// A function of the fake driver for tests, once it has been opened; nullptr: a GPU has none.
void* find_function(const char* name);
template <class Signature>
Signature* fake_function(const char* name) {
  return reinterpret_cast<Signature*>(find_function(name));
}
// What the device has counted in this process; -1: a GPU does not tell.
template <class Number = int>
Number counted(const char* what) {
  const auto count = fake_function<Number()>(what);
  return count == nullptr ? static_cast<Number>(-1) : count();
}
// Passes over the memory of several ranks; -1: a GPU does not tell.
inline int passes_over_ranks() { return counted("fake_cuda_placed"); }

}  // namespace rondo::testing
