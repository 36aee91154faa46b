#pragma once

#include <cstdint>

namespace rondo {

// Takes space for the first `bytes` of a file, so that no later write there fails for want of it. 0: done; else the
// system's number of the error. Signals wait meanwhile: in a file in memory each one would end the attempt, and undo
// it, so that a profiler's timer would keep a large file from ever being whole.
int take_file_space(int file, uint64_t bytes);

}  // namespace rondo
