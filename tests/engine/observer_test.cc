// What an observer keeps of the communicators of a join.
#include "ring/engine/observe/observer.h"

#include <doctest/doctest.h>
#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace rondo {
namespace {

TEST_CASE("however many communicators of the same ranks come and go, what is kept of them grows no more") {
  constexpr uint64_t kPastTheNumbers = 5'000, kMany = 20'000;
  constexpr size_t kNoise = 64 * 1024;
  std::vector<int> members(64);
  std::iota(members.begin(), members.end(), 0);
  ObservedRank about;
  about.world = static_cast<int>(members.size());
  Observer observer(about);
  for (uint64_t id = 0; id < kPastTheNumbers; ++id) observer.communicator(id, members);
  const size_t before = mallinfo2().uordblks;
  for (uint64_t id = 0; id < kMany; ++id) observer.communicator(id, members);
  CHECK(mallinfo2().uordblks < before + kNoise);
}

}  // namespace
}  // namespace rondo
