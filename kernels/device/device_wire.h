#pragma once

#include <cstdint>

#include "kernels/kernel_table.h"

namespace rondo {

// One coding of float32 elements in a wire format (wire_codec.h) on a device. Nothing needs alignment; no overlap.
struct DeviceWire {
  void* values;  // count float32: read by an encoding, written by a decoding
  void* coded;   // wire_bytes(): the other way
  uint64_t count;
  uint64_t*
      unfit;  // encoding: becomes the first element that is not finite or too large, if that is less; count before
  uint64_t seed, first;  // WireRounding
  bool stochastic;
  uint8_t format;  // WireFormat; not kNone
};

}  // namespace rondo
