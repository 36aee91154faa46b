#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/device_fold.h"

// Where a pass finds the memory of other ranks. A pass is put into a stream before the others have made the call, so it
// looks for their buffers when it runs: in cards, which the ranks have written into host memory that all of them map.
namespace rondo {

inline constexpr int kMaxPlaceRanks = 64;

// A buffer of a rank: `window` of its maker, from byte `offset` on, with `pitch` bytes from one block to the next.
struct BufferCard {
  uint32_t window;
  uint32_t unused;
  uint64_t offset;
  uint64_t pitch;
};
// What a rank tells the others of one call.
struct DeviceCard {
  uint64_t fingerprint;  // of the call
  BufferCard input, output;
};

// A window as this process maps it; data nullptr: it does not.
struct DeviceWindow {
  void* data;
  uint64_t bytes;
};

// One source or target of a pass. Its pointer in DeviceFold is a number of bytes to add.
struct PlaceRef {
  uint8_t rank;    // kOwnPlace: the pointer is one
  uint8_t output;  // 1: the rank's output; 0: its input
  uint16_t block;
};
inline constexpr uint8_t kOwnPlace = 0xff;

// Passed to kernels by value, beside DeviceFold: 1,080 + 1,112 bytes of the 4,096 that a kernel takes. All pointers are
// of locked host memory, as kernels reach it.
struct PeerPlaces {
  const DeviceCard* cards[kMaxPlaceRanks];  // of the call, by rank
  const DeviceWindow* windows;              // [window * world + rank]
  const uint32_t* stop;                     // not 0: the pass touches nothing. nullptr: there is no such word
  uint32_t* refused;                        // 1 + rank: its card is of another call, or no place in its window
  const uint64_t* length;                   // of a message in bytes; nullptr: the pass is of none
  uint64_t before;                          // bytes of the message before the pass, which ends where the message does
  uint64_t fingerprint;                     // of the call
  uint32_t world;                           // 0: the pass is as it is given
  uint32_t window_count;
  PlaceRef sources[kMaxDeviceSources];
  PlaceRef targets[kMaxDeviceTargets];
};

}  // namespace rondo
