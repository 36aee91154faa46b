#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"

namespace rondo {

inline constexpr int kMaxDeviceSources = 64;  // kMaxCombineSources, kMaxCombineTargets
inline constexpr int kMaxDeviceTargets = 64;

// One pass on a device: value = sources[0] op sources[1] op ..., in this order, written to every target. Pointers
// need no alignment, not even the element's; a target may be exactly one of the sources, no other overlap.
struct DeviceFold {
  const void* sources[kMaxDeviceSources];
  void* targets[kMaxDeviceTargets];
  uint64_t count;   // elements
  uint64_t scaled;  // bit i: sources[i] is scaled
  FoldArguments arguments;
  uint8_t source_count;
  uint8_t target_count;
  uint8_t dtype;  // DType
  uint8_t fold;   // Fold; kCopies: one source, copied as it is, whatever the dtype
};

inline constexpr uint8_t kCopies = kFolds;

// The widest access of a GPU that all compute capabilities have.
inline constexpr uint64_t kPacketBytes = 16;

// Every launch has 1,024 threads a multiprocessor with at most 64 registers each, 32 KiB of loads or more in flight,
// where memory of 3.4 TB/s needs 16 KiB at 600 ns.
inline constexpr uint32_t kThreadsABlock = 256;
inline constexpr uint32_t kBlocksAMultiprocessor = 4;

}  // namespace rondo
