#pragma once

#include "kernels/device/device_fold.h"
#include "kernels/device/peer_places.h"

namespace rondo {

// The passes of fold_pass.h compiled for this processor: `threads` threads one after the other. What a device without
// a GPU runs (tests/support/fake_cuda), and what is compared with combine(). threads >= 1.
void host_fold(const DeviceFold& fold, uint64_t threads);

// Fills in the pointers of a pass as a kernel does. False: nothing may be touched.
bool host_find_places(const PeerPlaces& places, DeviceFold& fold);

}  // namespace rondo
