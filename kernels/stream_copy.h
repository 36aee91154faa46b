#pragma once

#include <cstddef>

namespace rondo {

// memcpy for memory that nobody reads soon: the stores pass the caches by, so that the target's lines need not be read
// first (a third of the traffic of a copy between buffers that no cache holds). What is written is visible to whoever
// sees a later release store of this thread. No overlap; no alignment needed. Any thread.
// How much faster than memcpy: docs/tuning.md, "Stores that another core reads".
void stream_copy(void* to, const void* from, size_t bytes);

}  // namespace rondo
