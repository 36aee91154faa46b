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
  std::vector<Extent> input;   // by block, size = plan.chunks
  std::vector<Extent> output;  // by block, size = plan.chunks
};

// `count` elements cut into `chunks` runs whose lengths differ by at most one granule of `granule` elements.
std::vector<Extent> even_blocks(uint64_t count, uint32_t chunks, uint64_t granule);

// A piece up to here is one slice: each further slice costs a header and up to two system calls (about 2 us over
// loopback), as much as 8 to 16 KiB take on the wire. Inside a host both ends pay for it with processors that they need
// themselves, where they speak by sockets: with 64 instead of 16 KiB, on 2 cores over TCP, all_reduce of 64 KiB by 2
// ranks 35 instead of 45 us, of 128 and 256 KiB by 4 ranks 237 and 349 instead of 366 and 484. Not in a chain, whose
// one block is passed from rank to rank: there nothing but slices overlaps (reduce of 128 KiB by 4 ranks: 154 us with
// small slices, 288 with large ones).
enum class Passing : uint8_t { kChain, kOther };
constexpr uint64_t smallest_slice_bytes(Passing passing, bool loopback) {
  return passing == Passing::kOther && loopback ? 64 * 1024 : 16 * 1024;
}
// Inside a host a message costs processors rather than time on a wire, and where a rank has several blocks under way
// two slices of each are enough to overlap transfer and fold. With two instead of four, on 2 cores: all_reduce of 256
// KiB and 1 MiB over TCP by 4 ranks 0.58 and 1.27 instead of 0.64 and 1.42 ms; all_gather of 256 KiB through shared
// memory by 2 and 4 ranks 11 and 44 instead of 14 and 58 us; all_reduce of 256 KiB over TCP by 2 ranks, direct, 58
// instead of 63 us. In a chain nothing but slices overlaps.
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

// How a block is cut further: lanes, then rounds (what the mailboxes carry at once), then slices (one transfer each).
// Everything is a function of the block's length alone, so both ends of a link agree when they agree on the length.
struct Cut {
  uint32_t lanes = 1;
  uint64_t granule = 1;           // elements; lane shares and slices begin at multiples of it
  uint64_t slice = 1;             // elements of a full slice; a multiple of granule
  uint32_t slices_per_chunk = 1;  // a chunk is at most this many slices

  uint64_t chunk() const { return slice * slices_per_chunk; }
  Extent lane_share(uint64_t block_count, uint32_t lane) const;             // relative to the block
  uint64_t rounds(uint64_t block_count) const;                              // 0 for an empty block
  Extent piece(uint64_t block_count, uint32_t lane, uint64_t round) const;  // relative to the block; may be empty
  uint32_t slices(uint64_t piece_count) const {                             // 0 for an empty piece
    return static_cast<uint32_t>((piece_count + slice - 1) / slice);
  }
};

}  // namespace rondo
