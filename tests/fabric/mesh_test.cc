// Messages between ranks that are not connected find their way past those that have died.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "transport/control/control_mesh.h"

namespace rondo {
namespace {

TEST_CASE("any two that live reach each other where a third has died") {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const int world = seed % 2 == 0 ? 256 : 65 + static_cast<int>(random() % 192);
    std::vector<bool> gone(static_cast<size_t>(world));
    for (int i = 0; i < world / 3; ++i) gone[random() % static_cast<size_t>(world)] = true;
    MeshMap map(world);
    for (int rank = 0; rank < world; ++rank) {
      if (gone[static_cast<size_t>(rank)]) map.forget(rank);
    }
    std::vector<std::vector<int>> next;
    for (int rank = 0; rank < world; ++rank) {
      std::vector<int> connected = control_neighbors(rank, world);
      std::erase_if(connected, [&](int peer) { return gone[static_cast<size_t>(peer)]; });
      next.push_back(map.next_hops(rank, connected));
    }
    int longest = 0, lost = 0;
    for (int from = 0; from < world; ++from) {
      for (int to = 0; to < world; ++to) {
        if (from == to || gone[static_cast<size_t>(from)] || gone[static_cast<size_t>(to)]) continue;
        int at = from, hops = 0;
        while (at != to && at >= 0 && hops <= kMaxHops) {
          at = next[static_cast<size_t>(at)][static_cast<size_t>(to)];
          ++hops;
        }
        lost += at != to;
        longest = std::max(longest, hops);
      }
    }
    CHECK(lost == 0);
    CHECK(longest <= 8);
  }
}

}  // namespace
}  // namespace rondo
