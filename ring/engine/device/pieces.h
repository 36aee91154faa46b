#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ring/engine/call/call.h"

namespace rondo {

// A part of a call on device memory that is a call of its own, in a region of other memory. The region is in
// host memory, to which the part is copied and from which it is copied back, or in device memory that other
// ranks map. Offsets are bytes in the region.
struct Piece {
  // A copy of rows of bytes; `region` is where they begin in the region.
  struct Rows {
    std::byte* device = nullptr;
    uint64_t device_pitch = 0;
    uint64_t region = 0;
    uint64_t region_pitch = 0;
    uint64_t row_bytes = 0;
    uint64_t rows = 0;
    bool operator==(const Rows&) const = default;
  };
  std::vector<Rows> in, out;
  uint64_t region_bytes = 0;
  // Offsets of the call's buffers in the region. They may be the same memory.
  uint64_t input = 0, output = 0;
  // The call of the piece. Where blocks are even: elements [first, first + count) of each block. Else count
  // elements of the own block, and, where this rank has a block for each rank, of those, one after the other.
  uint64_t first = 0;
  uint64_t count = 0;
  std::vector<uint64_t> input_counts = {}, output_counts = {};
  // Calls without elements behind the last piece, in which other ranks may have some. Every rank makes as many
  // calls.
  uint32_t empty_calls = 0;
};

// Bytes of a piece, of its larger buffer. Small enough that only a small part of a call is copied while nothing
// else moves; large enough that a piece's own latency counts little.
inline constexpr uint64_t kPieceBytes = 4u << 20;
// The most pieces of one call, but for two at its edges: a stream takes a bounded number of entries.
inline constexpr uint64_t kMostPieces = 64;

// Pieces of gather_v, scatter_v and all_to_all_v. A rank knows only its own counts there, so there are always
// as many, and those behind a rank's last element are empty. The copies of the first and the last one, which
// overlap with nothing, are an eighth of all at most.
inline constexpr uint64_t kPairPieces = 16;
// Bytes of a piece of a call: a multiple of kPieceBytes, larger than that only if there would be more than
// most_pieces.
constexpr uint64_t piece_bytes_of(uint64_t bytes, uint64_t most_pieces = kMostPieces) {
  const uint64_t least = (bytes + most_pieces - 1) / most_pieces;
  const uint64_t pieces = (least + kPieceBytes - 1) / kPieceBytes;
  return kPieceBytes * (pieces > 1 ? pieces : 1);
}

// The pieces of a call, in order. They are cut alike on all ranks, by what all of them know, or both ranks of a
// block. Of an even call of three pieces or more the first and the last are cut once more, so that little is copied
// while nothing else moves. Pure.
std::vector<Piece> cut_pieces(const CheckedCall& call, const CallBuffers& buffers, int rank, int world,
                              uint64_t piece_bytes = kPieceBytes);

// All of the call.
Piece whole_piece(const CheckedCall& call, const CallBuffers& buffers, int rank, int world);

// A part of a list of all_reduces: tensors of one type, or parts of them, one after the other in the region.
// Piece::count: elements of all of them.
struct ListPiece {
  Piece piece;
  DType dtype = DType::kFloat32;
};
// Cuts a list into pieces of at most piece_bytes. Equal on all ranks that have the same counts and types. Pure.
std::vector<ListPiece> cut_list(std::span<const TensorRef> tensors, uint64_t piece_bytes);

}  // namespace rondo
