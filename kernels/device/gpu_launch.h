#pragma once

#include "kernels/device/device_fold.h"
#include "kernels/device/peer_places.h"

namespace rondo {

// Blocks of a grid on the current device: `asked`, or as many as run at once.
uint32_t blocks_at_most(uint32_t asked, int blocks_a_multiprocessor);

// The kernels, by DType; each row in the file that defines it.
const FoldRow& integer_fold_row(int dtype);
const FoldRow& other_fold_row(int dtype);

// Puts the pass into the stream of the current device. places.world 0: its pointers are known. 0, or a cudaError_t.
// fold.count 0 does nothing.
int gpu_fold(const DeviceFold& fold, const PeerPlaces& places, void* stream);

// Loads all kernels of passes for the current device. 0, or a cudaError_t.
int gpu_load_folds();
// One of them; kernel: of the runtime.
int gpu_load(const void* kernel);

}  // namespace rondo
