#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"

namespace rondo {

inline constexpr int kMaxDeviceSources = 64;  // kMaxCombineSources, kMaxCombineTargets
inline constexpr int kMaxDeviceTargets = 64;

// One pass on a device: value = sources[0] op sources[1] op ..., in this order, written to every target. Passed to
// kernels by value: 1,080 bytes of the 4,096 that a kernel takes. Pointers need no alignment, not even the element's;
// a target may be exactly one of the sources, no other overlap.
struct DeviceFold {
  const void* sources[kMaxDeviceSources];
  void* targets[kMaxDeviceTargets];
  uint64_t count;   // elements
  uint64_t scaled;  // bit i: sources[i] is scaled
  FoldArguments arguments;
  uint8_t source_count;
  uint8_t target_count;
  uint8_t dtype;    // DType
  uint8_t fold;     // Fold; kCopies: one source, copied as it is
  uint32_t blocks;  // of threads, at most; 0: as many as the device runs at once
};

inline constexpr uint8_t kCopies = kFolds;

struct PeerPlaces;

// Puts a pass into a stream; 0, or the error of the device's runtime. On a processor it is run at once, and there are
// no places to find.
using FoldLaunch = int (*)(const DeviceFold& fold, const PeerPlaces& places, void* stream);

// The passes of one dtype by Fold; nullptr where the pair is not defined.
struct FoldRow {
  FoldLaunch folds[kFolds];
};

}  // namespace rondo
