#include "ring/engine/device/pieces.h"

#include <algorithm>

namespace rondo {
namespace {

// Elements of a piece begin at whole cache lines of the region.
constexpr uint64_t kLineBytes = 64;

uint64_t lines(uint64_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes; }

struct Cutter {
  const CheckedCall& call;
  const uint64_t rank, world, element;

  bool is_root() const { return call.root == static_cast<int>(rank); }
  bool blocks_in() const {
    const Collective c = call.collective;
    return c == Collective::kReduceScatter || c == Collective::kAllToAll || (c == Collective::kScatter && is_root());
  }
  bool blocks_out() const {
    const Collective c = call.collective;
    return c == Collective::kAllGather || c == Collective::kAllToAll || (c == Collective::kGather && is_root());
  }
  bool reads() const {
    const Collective c = call.collective;
    return c == Collective::kBroadcast || c == Collective::kScatter ? is_root() : true;
  }
  bool writes() const {
    const Collective c = call.collective;
    if (c == Collective::kBroadcast) return !is_root();
    return c == Collective::kGather || c == Collective::kReduce ? is_root() : true;
  }
  // Bytes of the larger buffer for each element of a block: the same on all ranks.
  uint64_t widest() const {
    switch (call.collective) {
      case Collective::kAllReduce:
      case Collective::kBroadcast:
      case Collective::kReduce:
        return element;
      default:
        return element * world;
    }
  }

  std::byte* input() const { return const_cast<std::byte*>(call.input); }

  // Elements [first, first + count) of the block, or of every block.
  Piece even(uint64_t first, uint64_t count) const {
    Piece piece;
    piece.first = first;
    piece.count = count;
    const uint64_t bytes = count * element, pitch = call.count * element, offset = first * element;
    const uint64_t in_rows = blocks_in() ? world : 1, out_rows = blocks_out() ? world : 1;
    if (blocks_in() && blocks_out()) {
      piece.output = lines(bytes * world);
      piece.region_bytes = piece.output + bytes * world;
    } else {
      // In place: a single block is the own one of the others' buffer.
      piece.region_bytes = bytes * std::max(in_rows, out_rows);
      if (blocks_out()) piece.input = rank * bytes;
      if (blocks_in()) piece.output = rank * bytes;
    }
    if (reads() && bytes > 0) piece.in = {{input() + offset, pitch, piece.input, bytes, bytes, in_rows}};
    if (writes() && bytes > 0) piece.out = {{call.output + offset, pitch, piece.output, bytes, bytes, out_rows}};
    return piece;
  }

  static uint64_t end_of(const std::vector<Extent>& blocks) {
    uint64_t end = 0;
    for (const Extent& block : blocks) {
      if (block.count > 0) end = std::max(end, block.offset + block.count);
    }
    return end;
  }
  void add_blocks(std::byte* device, const std::vector<Extent>& blocks, uint64_t region,
                  std::vector<Piece::Rows>& rows) const {
    for (const Extent& block : blocks) {
      const uint64_t bytes = block.count * element, offset = block.offset * element;
      if (bytes > 0) rows.push_back({device + offset, bytes, region + offset, bytes, bytes, 1});
    }
  }
  // All blocks, where they lie in the caller's buffers.
  Piece uneven() const {
    Piece piece;
    piece.count = call.count;
    piece.output = lines(end_of(call.input_blocks) * element);
    piece.region_bytes = piece.output + end_of(call.output_blocks) * element;
    if (reads()) add_blocks(input(), call.input_blocks, piece.input, piece.in);
    if (writes()) add_blocks(call.output, call.output_blocks, piece.output, piece.out);
    return piece;
  }
};

}  // namespace

std::vector<Piece> cut_pieces(const CheckedCall& call, int rank, int world, uint64_t piece_bytes,
                              uint64_t most_pieces) {
  const Cutter cutter{call, static_cast<uint64_t>(rank), static_cast<uint64_t>(world), dtype_bytes(call.dtype)};
  if (call.uneven) return {cutter.uneven()};
  if (call.collective == Collective::kBarrier || call.count == 0) return {Piece{}};
  const uint64_t bytes = call.count * cutter.widest();
  const uint64_t pieces = std::min(most_pieces, (bytes + piece_bytes - 1) / piece_bytes);
  const uint64_t each = (call.count + pieces - 1) / pieces;
  std::vector<Piece> cut;
  for (uint64_t first = 0; first < call.count; first += each) {
    cut.push_back(cutter.even(first, std::min(each, call.count - first)));
  }
  return cut;
}

std::vector<ListPiece> cut_list(std::span<const TensorRef> tensors, uint64_t piece_bytes) {
  std::vector<ListPiece> cut;
  for (const TensorRef& tensor : tensors) {
    const uint64_t element = dtype_bytes(tensor.dtype), bytes = tensor.count * element;
    const uint64_t room = std::max(element, piece_bytes / element * element);
    for (uint64_t first = 0; first < bytes;) {
      const bool new_piece = cut.empty() || cut.back().dtype != tensor.dtype || cut.back().piece.region_bytes == room;
      if (new_piece) cut.push_back({{}, tensor.dtype});
      Piece& piece = cut.back().piece;
      const uint64_t part = std::min(bytes - first, room - piece.region_bytes);
      auto* const input = static_cast<std::byte*>(const_cast<void*>(tensor.input));
      piece.in.push_back({input + first, part, piece.region_bytes, part, part, 1});
      piece.out.push_back({static_cast<std::byte*>(tensor.output) + first, part, piece.region_bytes, part, part, 1});
      piece.region_bytes += part;
      piece.count += part / element;
      first += part;
    }
  }
  return cut;
}

}  // namespace rondo
