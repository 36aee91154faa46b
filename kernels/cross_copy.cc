#include "kernels/cross_copy.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>

#include "kernels/stream_copy.h"

namespace rondo {
namespace {

// Speed of streamed stores against cached ones as the writer sees it: 0.4 to 2.5 (4 to 16 KiB) and 0.3 to 0.7 (larger)
// where the reader shares a cache, 3.4 to 9 and 3.4 to 5.6 elsewhere. The margins lie between. Small copies have their
// own, since the processor's write buffers hide part of their cost.
constexpr size_t kHidden = 32 * 1024;
constexpr double kMarginHidden = 3, kMargin = 2.5;

}  // namespace

Stores stores_of(std::string_view name) {
  return name == "cached" ? Stores::kCached : name == "streamed" ? Stores::kStreamed : Stores::kTimed;
}

CrossCopy::CrossCopy(Stores stores) : stores_(stores) {
  for (size_t i = 0; i < kSizes; ++i) trials_.emplace_back((kFewest << i) < kHidden ? kMarginHidden : kMargin);
}

size_t CrossCopy::place_of(size_t bytes) {
  return std::min<size_t>(static_cast<size_t>(std::bit_width(bytes) - std::bit_width(kFewest)), kSizes - 1);
}

void CrossCopy::copy(void* to, const void* from, size_t bytes) {
  if (bytes < kFewest) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  using Clock = std::chrono::steady_clock;
  StoreTrials& trials = trials_[place_of(bytes)];
  const bool timed = stores_ == Stores::kTimed && trials.timed();
  const auto begin = timed ? Clock::now() : Clock::time_point{};
  if (streams(bytes)) {
    stream_copy(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
  if (stores_ != Stores::kTimed) return;
  double took = 0;
  if (timed) took = std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / static_cast<double>(bytes);
  trials.copied(to, took);
}

}  // namespace rondo
