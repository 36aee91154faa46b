#pragma once

#include <cstddef>

namespace rondo {

// memcpy with stores that bypass the caches, for a target that is not read soon. Its lines are not read first, which
// saves a third of the memory traffic. A thread that acquires a later release store of this thread sees the copy. No
// overlap; any alignment; any thread. Speed: docs/tuning.md, "Stores that another core reads".
void stream_copy(void* to, const void* from, size_t bytes);

}  // namespace rondo
