#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ring/base/types.h"

namespace rondo {

// A run of elements: [offset, offset + count).
struct Extent {
  uint64_t offset = 0;
  uint64_t count = 0;
  bool operator==(const Extent&) const = default;
};

// Where the blocks of one call lie in the caller's buffers, in elements. Blocks that a rank does not hold are empty.
struct Blocks {
  std::vector<Extent> input;   // by block, size = plan.blocks
  std::vector<Extent> output;  // by block, size = plan.blocks
};

// Elements of a block of which `bytes` hold one piece for each of `parts`. 0: not one fits, so nothing that needs such
// a piece may run; elements are up to kMostUserBytes long.
constexpr uint64_t elements_that_fit(uint64_t bytes, uint64_t parts, size_t element_bytes) {
  return bytes / parts / element_bytes;
}

// Bytes that a rank posts at most in one round of a one-shot plan (ring/engine/island/post_board.h has room for them).
// Up to here a collective over windows that has no root goes by posts instead.
inline constexpr size_t kPostBytes = 64 * 1024;

// `count` elements cut into `parts` runs whose lengths differ by at most one granule of `granule` elements.
std::vector<Extent> even_blocks(uint64_t count, uint32_t parts, uint64_t granule);

// A piece up to here is one slice: each further slice costs a header and up to two system calls, as much as 8 to 16 KiB
// take on the wire. Over TCP inside a host the two ends' processors pay for both, so larger slices are faster there;
// not in a chain, whose one block is passed from rank to rank, since there nothing but slices overlaps (docs/tuning.md,
// "Slices and small sends over TCP").
enum class Passing : uint8_t { kChain, kOther };
constexpr uint64_t smallest_slice_bytes(Passing passing, bool loopback) {
  return passing == Passing::kOther && loopback ? 64 * 1024 : 16 * 1024;
}
// Inside a host a message costs processors rather than time on a wire: two slices of a block are enough to overlap
// transfer and fold (docs/tuning.md, the same).
inline constexpr uint32_t kSlicesInsideHost = 2;
// A plan of one block that is no direct exchange passes it on.
constexpr Passing passing_of(Algorithm algorithm, uint32_t blocks) {
  return blocks == 1 && algorithm != Algorithm::kDirect ? Passing::kChain : Passing::kOther;
}
// Into how many slices a block is cut, unless they get smaller than smallest_slice_bytes() or larger than the links'.
// most: what a link holds of one.
constexpr uint32_t wanted_slices(Passing passing, bool one_host, uint32_t most) {
  return passing == Passing::kOther && one_host ? std::min(most, kSlicesInsideHost) : most;
}

// How a block is cut further: rounds (what the mailboxes carry at once), then slices (one transfer each).
// Everything is a function of the block's length alone, so both ends of a link agree when they agree on the length.
struct Slicing {
  uint64_t granule = 1;           // elements; slices begin at multiples of it
  uint64_t slice = 1;             // elements of a full slice; a multiple of granule
  uint32_t slices_per_chunk = 1;  // a chunk, a round's part of a block, is at most this many slices

  uint64_t chunk() const { return slice * slices_per_chunk; }
  uint64_t rounds(uint64_t block_count) const;  // 0 for an empty block
  // What a round moves of a block; relative to it, may be empty.
  Extent piece(uint64_t block_count, uint64_t round) const {
    const uint64_t begin = std::min(block_count, round * chunk());
    return {begin, std::min(block_count - begin, chunk())};
  }
  uint32_t slices(uint64_t piece_count) const {  // 0 for an empty piece
    return static_cast<uint32_t>((piece_count + slice - 1) / slice);
  }
};

}  // namespace rondo
