#pragma once

#include <vector>

#include "tests/engine/cases.h"
#include "tests/support/fake_cuda/mirror.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {

// Ranks with a fake device each, or, as threads, one of all.
inline RankGroup device_group(int world, const char* transport) {
  RankGroup group;
  group.world = world;
  group.config.transport = world == 1 ? "auto" : transport;
  group.config.device_library = device_library();
  return group;
}

// Where the buffers of a case lie: in device memory of their own, or in memory of Communicator::allocate() on all ranks
// or on those of odd number.
enum class BufferKind : uint8_t { kPlain, kRegistered, kOddRegistered };

// Runs the cases on device memory on this rank, one after the other; throws what is wrong. Nothing but the stream waits
// for a call.
void run_on_device(Communicator& group, const std::vector<CollectiveCase>& cases,
                   BufferKind buffers = BufferKind::kPlain);

// What the device, which has been opened, has counted in this process: "fake_cuda_..."; -1: a GPU does not tell.
void* counter(const char* what);
template <class Number = int>
Number counted(const char* what) {
  const auto count = reinterpret_cast<Number (*)()>(counter(what));
  return count == nullptr ? static_cast<Number>(-1) : count();
}
// Passes over the memory of several ranks; -1: a GPU does not tell.
inline int passes_over_ranks() { return counted("fake_cuda_placed"); }

}  // namespace rondo::testing
