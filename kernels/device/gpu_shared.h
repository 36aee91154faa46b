#pragma once

#include "kernels/device.h"

namespace rondo {

// DeviceTable: allocate_shared(), map_shared(), release_shared(), and what `device` can of it.
int32_t gpu_shares_memory(int device);
DeviceStatus gpu_allocate_shared(size_t bytes, MemorySharing sharing, void** memory, int* descriptor);
DeviceStatus gpu_map_shared(int descriptor, MemorySharing sharing, size_t bytes, void** memory);
DeviceStatus gpu_release_shared(void* memory);

}  // namespace rondo
