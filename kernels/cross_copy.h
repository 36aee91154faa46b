#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/store_trials.h"

namespace rondo {

// By what stores memory is written that another core reads next.
enum class Stores : uint8_t {
  kTimed,     // whichever is faster
  kCached,    // through the caches
  kStreamed,  // past them, whatever is not too small
};
// "auto", "cached" or "streamed" (Config::shared_stores).
Stores stores_of(std::string_view name);

// Copies to memory that another core reads next, and has read before: posts, staging memory, slots. A store to a line
// that another core holds asks that core to give it up. Between cores that share a cache that is cheap, and what is
// written stays in it. Between others (another socket, another part of the processor) every line waits for an answer:
// then it is better to write past the caches (kernels/stream_copy.h), and let the other core fetch from memory. Where
// the cores are is not to be asked, and changes under a virtual machine, so the copies themselves are timed.
//
// docs/tuning.md, "Stores that another core reads", has the measurements.
//
// The writer sees its own cost alone. The margins make up for the reader's: streamed, it reads up to three times as
// long from a core near by.
class CrossCopy {
 public:
  // Smaller copies are not worth a choice: always through the caches.
  static constexpr size_t kFewest = 4 * 1024;

  explicit CrossCopy(Stores stores = Stores::kTimed);

  // What is written is visible to whoever sees a later release store of this thread. No overlap; no alignment needed.
  // Never throws or allocates. One thread at a time.
  void copy(void* to, const void* from, size_t bytes);

  // Whether a copy of so many bytes goes past the caches now: for who writes such memory by other means.
  bool streams(size_t bytes) const {
    return bytes >= kFewest &&
           (stores_ == Stores::kTimed ? trials_[place_of(bytes)].streams() : stores_ == Stores::kStreamed);
  }

 private:
  // By powers of two; the last is for all that is larger.
  static constexpr size_t kSizes = 10;
  static size_t place_of(size_t bytes);

  Stores stores_;
  std::vector<StoreTrials> trials_;
};

}  // namespace rondo
