#pragma once

#include "kernels/device/device_fold.h"

namespace rondo {

// The passes of fold_pass.h compiled for this processor: `threads` threads one after the other. What a device without
// a GPU runs (fake_cuda/), and what is compared with combine(). threads >= 1.
void host_fold(const DeviceFold& fold, uint64_t threads);

}  // namespace rondo
