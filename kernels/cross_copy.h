#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "kernels/stream_copy.h"

namespace rondo {

// How to store what another core reads next: posts, staging memory, slots. A store to a cache line that another core
// holds has to take the line from it first. That is cheap where the two cores share a cache, and slow elsewhere
// (another socket, another die): there streamed stores (kernels/stream_copy.h) are better, and the reader fetches from
// memory. No interface tells reliably where a core is, least of all in a virtual machine, so the ranks of a
// communicator time both (ring/engine/route/trials.h, ring/engine/p2p/message_trials.h). Measurements: docs/tuning.md,
// "Stores that another core reads".
enum class Stores : uint8_t {
  kCached,    // through the caches
  kStreamed,  // past the caches (copies of kFewestStreamed bytes and more)
};

// Smaller copies always go through the caches.
inline constexpr size_t kFewestStreamed = 4 * 1024;

constexpr bool streams(Stores stores, size_t bytes) { return stores == Stores::kStreamed && bytes >= kFewestStreamed; }

// Copies by such stores. A thread that acquires a later release store of this thread sees the copy. No overlap; any
// alignment; any thread.
inline void cross_copy(void* to, const void* from, size_t bytes, Stores stores) {
  if (streams(stores, bytes)) {
    stream_copy(to, from, bytes);
  } else if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace rondo
