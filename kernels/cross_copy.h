#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/store_trials.h"

namespace rondo {

// How to store what another core reads next.
enum class Stores : uint8_t {
  kTimed,     // the faster of the two, as measured
  kCached,    // through the caches
  kStreamed,  // past the caches (copies of kFewest bytes and more)
};
// "auto", "cached" or "streamed" (Config::shared_stores).
Stores stores_of(std::string_view name);

// Copies to memory that another core has read and reads next: posts, staging memory, slots. A store to a cache line
// that another core holds has to take the line from it first. That is cheap where the two cores share a cache, and slow
// elsewhere (another socket, another die): there streamed stores (kernels/stream_copy.h) are better, and the reader
// fetches from memory. No interface tells reliably where a core is, least of all in a virtual machine, so copies are
// timed. Only the writer's time is seen; a margin stands for the reader's, who reads streamed data from a near core up
// to three times as long. Measurements: docs/tuning.md, "Stores that another core reads".
class CrossCopy {
 public:
  // Smaller copies always go through the caches.
  static constexpr size_t kFewest = 4 * 1024;

  explicit CrossCopy(Stores stores = Stores::kTimed);

  // A thread that acquires a later release store of this thread sees the copy. No overlap; any alignment. Never throws
  // or allocates. One thread at a time.
  void copy(void* to, const void* from, size_t bytes);

  // Whether copy() would stream that many bytes now, for code that writes such memory by other means.
  bool streams(size_t bytes) const {
    return bytes >= kFewest &&
           (stores_ == Stores::kTimed ? trials_[place_of(bytes)].streams() : stores_ == Stores::kStreamed);
  }

 private:
  // One for each power of two; the last also for everything larger.
  static constexpr size_t kSizes = 10;
  static size_t place_of(size_t bytes);

  Stores stores_;
  std::vector<StoreTrials> trials_;
};

}  // namespace rondo
