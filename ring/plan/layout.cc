#include "ring/plan/layout.h"

#include <algorithm>

namespace rondo {
namespace {

// Without a + b - 1, which would overflow for counts near 2^64.
uint64_t divide_up(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }

}  // namespace

// The first blocks are the longer ones. Only the last granule may be incomplete, so only the last nonempty block can
// end off a granule's boundary.
std::vector<Extent> even_blocks(uint64_t count, uint32_t parts, uint64_t granule) {
  std::vector<Extent> blocks(parts);
  const uint64_t granules = divide_up(count, granule);
  uint64_t begin = 0;
  for (uint32_t c = 0; c < parts; ++c) {
    const uint64_t share = granules / parts + (c < granules % parts);
    const uint64_t end = std::min(count, begin + share * granule);
    blocks[c] = {begin, end - begin};
    begin = end;
  }
  return blocks;
}

uint64_t Slicing::rounds(uint64_t block_count) const { return divide_up(block_count, chunk()); }

}  // namespace rondo
