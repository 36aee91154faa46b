// Copies to memory that another core reads next.
#include "kernels/cross_copy.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

namespace rondo::testing {

TEST_CASE("cross copy: every byte, by whatever stores, and none beside it") {
  constexpr size_t kGuard = 64;
  std::vector<unsigned char> source(70'000);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(i * 131 + 7);
  for (const Stores stores : {Stores::kCached, Stores::kStreamed}) {
    CAPTURE(static_cast<int>(stores));
    for (const size_t bytes : {size_t{0}, size_t{1}, kFewestStreamed - 1, kFewestStreamed, size_t{65'537}}) {
      for (const size_t offset : {0, 3, 32}) {
        std::vector<unsigned char> target(bytes + offset + 2 * kGuard, 0xee);
        std::vector<unsigned char> expected = target;
        std::memcpy(expected.data() + kGuard + offset, source.data(), bytes);
        cross_copy(target.data() + kGuard + offset, source.data(), bytes, stores);
        CHECK(target == expected);
      }
    }
  }
  CHECK(!streams(Stores::kStreamed, kFewestStreamed - 1));
  CHECK(streams(Stores::kStreamed, kFewestStreamed));
  CHECK(!streams(Stores::kCached, kFewestStreamed));
}

}  // namespace rondo::testing
