#pragma once

#include "kernels/device/device_wire.h"

namespace rondo {

// Puts a coding into the stream of the current device. 0, or a cudaError_t. wire.count 0 does nothing. unfit: memory of
// the device.
int gpu_wire_encode(const DeviceWire& wire, void* stream);
int gpu_wire_decode(const DeviceWire& wire, void* stream);

}  // namespace rondo
