#include <cstring>

#include "kernels/stream_copy.h"

namespace rondo {

void stream_copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

}  // namespace rondo
