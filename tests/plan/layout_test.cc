#include "ring/plan/layout.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace rondo {

TEST_CASE("even_blocks: blocks tile the count in order, and differ by at most one granule") {
  for (uint64_t count : {0u, 1u, 3u, 4u, 5u, 63u, 64u, 65u, 1000003u}) {
    for (uint32_t parts : {1u, 2u, 3u, 4u, 64u}) {
      for (uint64_t granule : {1u, 4u, 32u}) {
        const std::vector<Extent> blocks = even_blocks(count, parts, granule);
        REQUIRE_EQ(blocks.size(), parts);
        uint64_t end = 0, most = 0, least = ~uint64_t{0};
        for (const Extent& block : blocks) {
          REQUIRE_EQ(block.offset, end);
          end += block.count;
          most = std::max(most, block.count);
          least = std::min(least, block.count);
          if (block.count > 0) REQUIRE_EQ(block.offset % granule, 0);
        }
        CHECK_EQ(end, count);
        // The last block that holds anything may end short of its granule.
        CHECK_LE(most - least, 2 * granule - 1);
      }
    }
  }
}

TEST_CASE("Slicing: rounds tile every block, and no piece has more slices than a chunk") {
  for (uint64_t count : {0u, 1u, 31u, 32u, 33u, 4096u, 100001u}) {
    for (uint32_t per_chunk : {1u, 3u, 4u}) {
      const Slicing slicing{32, 64, per_chunk};
      uint64_t end = 0;
      for (uint64_t round = 0; round < slicing.rounds(count); ++round) {
        const Extent piece = slicing.piece(count, round);
        REQUIRE_GT(piece.count, 0);
        REQUIRE_EQ(piece.offset, end);
        REQUIRE_LE(slicing.slices(piece.count), per_chunk);
        end += piece.count;
      }
      CHECK_EQ(end, count);
    }
  }
}

TEST_CASE("Slicing: an empty block has no round, an empty piece no slice") {
  const Slicing slicing{1, 8, 2};
  CHECK_EQ(slicing.rounds(0), 0);
  CHECK_EQ(slicing.slices(0), 0);
  CHECK_EQ(slicing.piece(5, 1).count, 0);
}

}  // namespace rondo
