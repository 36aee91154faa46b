#pragma once

#include <cstdint>

namespace rondo {

// Takes space for the first `bytes` of a file, so that no later write there fails for want of it. Returns 0, or
// the errno.
//
// Signals are blocked meanwhile. In a file in memory each signal would end the attempt and undo it, so a
// profiler's timer would keep a large file from ever being complete.
int take_file_space(int file, uint64_t bytes);

}  // namespace rondo
