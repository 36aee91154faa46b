#pragma once

#include "kernels/device/device_wire.h"

namespace rondo {

// The lanes of wire_pass.h compiled for this processor, one after the other: what is compared with wire_encode() and
// wire_decode().
void host_wire_encode(const DeviceWire& wire);
void host_wire_decode(const DeviceWire& wire);

}  // namespace rondo
