#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ring/engine/call/call.h"

namespace rondo {

// A part of a call on device memory that is a call of its own, in a region of other memory: in host memory, to which it
// is copied and from which it is copied back, or in device memory that other ranks map. Offsets are bytes in the
// region.
struct Piece {
  // A copy of rows; `region` is the region's end.
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
  // The call: of the elements [first, first + count) of each block where blocks are even; else of the own block, and
  // where this rank has a block for each rank, of these, one after the other.
  uint64_t first = 0;
  uint64_t count = 0;
  std::vector<uint64_t> input_counts = {}, output_counts = {};
  // The last piece: calls of no element behind it, which other ranks may have elements in.
  uint32_t empty_calls = 0;
};

// Bytes of a piece, of its larger buffer: small enough that few of a call are copied beside nothing else; large enough
// that a piece's own latency is little.
inline constexpr uint64_t kPieceBytes = 4u << 20;
// Pieces of one call: entries of a stream are bounded.
inline constexpr uint64_t kMostPieces = 64;

// Pieces of gather_v, scatter_v and all_to_all_v, of which a rank knows its own counts only: always as many. Those
// behind a rank's last element are empty. Copying the first and the last one is at most an eighth of the copies.
inline constexpr uint64_t kPairPieces = 16;
// Whole pieces, larger than kPieceBytes only where there would be more than most_pieces of them.
constexpr uint64_t piece_bytes_of(uint64_t bytes, uint64_t most_pieces = kMostPieces) {
  const uint64_t least = (bytes + most_pieces - 1) / most_pieces;
  const uint64_t pieces = (least + kPieceBytes - 1) / kPieceBytes;
  return kPieceBytes * (pieces > 1 ? pieces : 1);
}

// kShort: the first and the last of three pieces or more are cut once more, so that little is copied while nothing else
// moves.
enum class Edges : bool { kWhole, kShort };

// The pieces of a call, in order, cut alike on all ranks: by what all of them know, or both ranks of a block. Of an
// uneven one the edges are whole. Pure.
std::vector<Piece> cut_pieces(const CheckedCall& call, const CallBuffers& buffers, int rank, int world,
                              uint64_t piece_bytes = kPieceBytes, uint64_t most_pieces = kMostPieces,
                              Edges edges = Edges::kWhole);

// All of the call.
Piece whole_piece(const CheckedCall& call, const CallBuffers& buffers, int rank, int world);

// A part of a list of all_reduces: tensors of one type, or runs of elements of them, one after the other in the region.
// Piece::count: elements of all of them.
struct ListPiece {
  Piece piece;
  DType dtype = DType::kFloat32;
};
// Cuts a list into pieces of at most piece_bytes. Equal on all ranks that were given the same counts and types. Pure.
std::vector<ListPiece> cut_list(std::span<const TensorRef> tensors, uint64_t piece_bytes);

}  // namespace rondo
