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

// All lanes but the last nonempty one get the same whole number of granules: lane 0 has the longest share.
Extent Slicing::lane_share(uint64_t block_count, uint32_t lane) const {
  const uint64_t share = divide_up(divide_up(block_count, granule), lanes) * granule;
  const uint64_t begin = std::min(block_count, share * lane);
  return {begin, std::min(block_count, begin + share) - begin};
}

// Counted for lane 0, so that all lanes of a block have equally many rounds; a later lane's last round may be empty.
uint64_t Slicing::rounds(uint64_t block_count) const { return divide_up(lane_share(block_count, 0).count, chunk()); }

}  // namespace rondo
