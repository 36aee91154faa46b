#include "ring/engine/device/pieces.h"

#include <algorithm>

namespace rondo {
namespace {

// Elements of a piece begin at whole cache lines of the region.
constexpr uint64_t kRegionLine = 64;

uint64_t lines(uint64_t bytes) { return (bytes + kRegionLine - 1) / kRegionLine * kRegionLine; }

// The most copies of single blocks that an uneven call makes, each way: each block of a piece is one copy. But
// it has at least kLeastPieces pieces.
constexpr uint64_t kMostBlockCopies = 256, kLeastPieces = 4;

// The short part of a piece at an edge is one of so many.
constexpr uint64_t kEdgeParts = 4;

struct UnevenCut {
  uint64_t pieces = 1;
  uint64_t pair_elements = 1;  // of a block that only its two ranks know, at least, while there are any
};

// Knows which buffers a rank has in a collective, and where a piece's blocks lie in them.
struct Cutter {
  const CheckedCall& call;
  const CallBuffers& buffers;
  const uint64_t rank, world, element;

  bool is_root() const { return call.root == static_cast<int>(rank); }
  const CollectiveFacts& facts() const { return facts_of(call.collective); }
  bool blocks_in() const { return facts().input.blocks && reads(); }
  bool blocks_out() const { return facts().output.blocks && writes(); }
  bool reads() const { return !facts().input.rooted || is_root(); }
  bool writes() const {
    if (call.collective == Collective::kBroadcast) return !is_root();
    return !facts().output.rooted || is_root();
  }
  // Bytes of the larger buffer for each element of a block: the same on all ranks.
  uint64_t widest() const { return collective_has_blocks(call.collective) ? element * world : element; }

  std::byte* input() const { return const_cast<std::byte*>(buffers.input); }

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
    if (writes() && bytes > 0) piece.out = {{buffers.output + offset, pitch, piece.output, bytes, bytes, out_rows}};
    return piece;
  }

  // --- uneven
  bool pairs_know() const { return !collective_shares_blocks(call.collective); }
  // The part of a block that is in the piece.
  Extent part_of(const Extent& block, uint64_t index, const UnevenCut& cut) const {
    if (!pairs_know()) {  // balanced
      const uint64_t each = block.count / cut.pieces, more = block.count % cut.pieces;
      return {block.offset + index * each + std::min(index, more), each + (index < more ? 1 : 0)};
    }
    const uint64_t each = std::max(cut.pair_elements, (block.count + cut.pieces - 1) / cut.pieces);
    const uint64_t first = std::min(block.count, index * each);
    return {block.offset + first, std::min(each, block.count - first)};
  }
  // Copies of the parts of all blocks, one after the other from `region` on; their end.
  uint64_t add_blocks(std::byte* device, const std::vector<Extent>& parts, uint64_t region,
                      std::vector<Piece::Rows>* rows) const {
    for (const Extent& part : parts) {
      const uint64_t bytes = part.count * element;
      if (bytes > 0 && rows != nullptr) {
        rows->push_back({device + part.offset * element, bytes, region, bytes, bytes, 1});
      }
      region += bytes;
    }
    return region;
  }
  std::vector<Extent> parts_of(const std::vector<Extent>& blocks, uint64_t index, const UnevenCut& cut) const {
    std::vector<Extent> parts;
    for (const Extent& block : blocks) parts.push_back(part_of(block, index, cut));
    return parts;
  }
  uint64_t before_own(const std::vector<Extent>& parts) const {
    uint64_t bytes = 0;
    for (size_t r = 0; r < rank; ++r) bytes += parts[r].count * element;
    return bytes;
  }
  // In place, as even pieces are: a single block is the own one of the others' buffer.
  Piece uneven(uint64_t index, const UnevenCut& cut) const {
    const std::vector<Extent> in = parts_of(call.blocks->input, index, cut);
    const std::vector<Extent> out = parts_of(call.blocks->output, index, cut);
    Piece piece;
    piece.count = (blocks_in() ? in : out)[rank].count;
    if (!blocks_in() && !blocks_out()) piece.count = std::max(in[rank].count, out[rank].count);
    if (blocks_out() && !blocks_in()) piece.input = before_own(out);
    if (blocks_in() && !blocks_out()) piece.output = before_own(in);
    if (blocks_in() && blocks_out()) piece.output = lines(add_blocks(nullptr, in, 0, nullptr));
    const uint64_t in_end = add_blocks(input(), in, piece.input, reads() ? &piece.in : nullptr);
    const uint64_t out_end = add_blocks(buffers.output, out, piece.output, writes() ? &piece.out : nullptr);
    piece.region_bytes = std::max(in_end, out_end);
    for (const Extent& part : in) {
      if (blocks_in()) piece.input_counts.push_back(part.count);
    }
    for (const Extent& part : out) {
      if (blocks_out()) piece.output_counts.push_back(part.count);
    }
    return piece;
  }
  std::vector<Piece> all_uneven(uint64_t piece_bytes) const {
    // Each block is a copy of its own.
    const uint64_t most = std::clamp(kMostBlockCopies / world, kLeastPieces, kMostPieces);
    UnevenCut cut;
    cut.pieces = pairs_know() ? std::min(most, kPairPieces)
                              : std::clamp((call.total_bytes(static_cast<int>(world)) + piece_bytes - 1) / piece_bytes,
                                           uint64_t{1}, most);
    cut.pair_elements = std::max(uint64_t{1}, piece_bytes / element / world);
    std::vector<Piece> pieces;
    uint32_t empty = 0;
    for (uint64_t index = 0; index < cut.pieces; ++index) {
      Piece piece = uneven(index, cut);
      const bool is_empty = piece.in.empty() && piece.out.empty();
      if (is_empty && index > 0) {
        ++empty;
      } else {
        pieces.push_back(std::move(piece));
      }
    }
    pieces.back().empty_calls = empty;
    return pieces;
  }
};

}  // namespace

std::vector<Piece> cut_pieces(const CheckedCall& call, const CallBuffers& buffers, int rank, int world,
                              uint64_t piece_bytes) {
  const Cutter cutter{call, buffers, static_cast<uint64_t>(rank), static_cast<uint64_t>(world),
                      dtype_bytes(call.dtype)};
  if (call.uneven) return cutter.all_uneven(piece_bytes);
  if (call.collective == Collective::kBarrier || call.count == 0) return {Piece{}};
  const uint64_t bytes = call.count * cutter.widest();
  const uint64_t pieces = std::min(kMostPieces, (bytes + piece_bytes - 1) / piece_bytes);
  const uint64_t each = (call.count + pieces - 1) / pieces;
  std::vector<Piece> cut;
  const auto add = [&](uint64_t first, uint64_t end) {
    if (end > first) cut.push_back(cutter.even(first, end - first));
  };
  const bool has_short = pieces > 2;
  const uint64_t edge = each / kEdgeParts;
  for (uint64_t first = 0; first < call.count; first += each) {
    const uint64_t end = std::min(first + each, call.count);
    const uint64_t short_end = has_short && first == 0 ? edge : first;
    const uint64_t short_begin = has_short && end == call.count ? std::max(short_end, end - std::min(end, edge)) : end;
    add(first, short_end);
    add(short_end, short_begin);
    add(short_begin, end);
  }
  return cut;
}

Piece whole_piece(const CheckedCall& call, const CallBuffers& buffers, int rank, int world) {
  const Cutter cutter{call, buffers, static_cast<uint64_t>(rank), static_cast<uint64_t>(world),
                      dtype_bytes(call.dtype)};
  if (call.collective == Collective::kBarrier) return {};
  return call.uneven ? cutter.uneven(0, {}) : cutter.even(0, call.count);
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
