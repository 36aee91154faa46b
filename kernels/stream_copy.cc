#include "kernels/stream_copy.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace rondo {

#if !defined(__x86_64__) || defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
// Arm's cores find streams of stores by themselves. Sanitizers do not see streamed stores.
void stream_copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
#else
// Streamed stores need whole lines of the target: what comes before the first one, and after the last, goes through the
// caches. Lines that are written in part would be read from memory first.
void stream_copy(void* to, const void* from, size_t bytes) {
  constexpr size_t kLine = 64;
  auto* target = static_cast<char*>(to);
  const auto* source = static_cast<const char*>(from);
  const size_t head = (kLine - reinterpret_cast<uintptr_t>(target) % kLine) % kLine;
  if (bytes < head + kLine) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(target, source, head);
  size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    const auto* in = reinterpret_cast<const __m128i*>(source + at);
    auto* out = reinterpret_cast<__m128i*>(target + at);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  std::memcpy(target + at, source + at, bytes - at);
  _mm_sfence();  // nothing else orders streaming stores
}
#endif

}  // namespace rondo
