#include "kernels/stream_copy.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

namespace rondo {

TEST_CASE("stream_copy writes every byte of its target and none beside it, wherever both begin") {
  constexpr size_t kGuard = 64;
  std::vector<unsigned char> source(5000);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(i * 131 + 7);
  for (const size_t bytes : {0, 1, 63, 64, 65, 127, 128, 129, 1000, 4096, 4500}) {
    for (size_t from = 0; from < 66; from += 5) {
      for (size_t to = 0; to < 66; to += 3) {
        std::vector<unsigned char> target(bytes + 2 * kGuard + 66, 0xee);
        unsigned char* begin = target.data() + kGuard + to;
        stream_copy(begin, source.data() + from, bytes);
        bool right = std::memcmp(begin, source.data() + from, bytes) == 0;
        for (const unsigned char* at = target.data(); at < begin; ++at) right &= *at == 0xee;
        for (const unsigned char* at = begin + bytes; at < target.data() + target.size(); ++at) right &= *at == 0xee;
        CHECK(right);
      }
    }
  }
}

}  // namespace rondo
