// Calls on device memory are cut into pieces that cover every element of the call once, alike on all ranks.
#include "ring/engine/device/pieces.h"

#include <doctest/doctest.h>

#include <map>
#include <vector>

#include "tests/support/collective_check.h"
#include "tests/support/random.h"

namespace rondo::testing {
namespace {

// How often each byte of device memory is copied, from `base` on.
std::vector<int> covered(const std::vector<Piece>& pieces, bool in, const std::byte* base, uint64_t bytes) {
  std::vector<int> times(bytes);
  for (const Piece& piece : pieces) {
    for (const Piece::Rows& rows : in ? piece.in : piece.out) {
      CHECK(rows.region + (rows.rows - 1) * rows.region_pitch + rows.row_bytes <= piece.region_bytes);
      for (uint64_t row = 0; row < rows.rows; ++row) {
        const auto at = static_cast<uint64_t>(rows.device - base) + row * rows.device_pitch;
        REQUIRE(at + rows.row_bytes <= bytes);
        for (uint64_t b = 0; b < rows.row_bytes; ++b) ++times[at + b];
      }
    }
  }
  return times;
}

void check(const CollectiveCase& what, int rank, uint64_t piece_bytes, std::vector<uint64_t>& counts) {
  const CollectiveRank one(what, rank);
  const CheckedCall call = check_call(one.call(), rank, what.world);
  const CallBuffers buffers = buffers_of(one.call());
  const std::vector<Piece> pieces = cut_pieces(call, buffers, rank, what.world, piece_bytes);
  const uint64_t element = dtype_bytes(call.dtype);
  REQUIRE(pieces.size() <= kMostPieces + 2);
  uint64_t next = 0;
  for (const Piece& piece : pieces) {
    CHECK(piece.first == next);
    next += piece.count;
    counts.push_back(piece.count);
  }
  CHECK(next == call.count);
  const auto all_or_nothing = [&](bool in, const std::byte* base, const std::vector<Extent>& blocks) {
    uint64_t end = blocks.empty() ? call.count : 0;
    for (const Extent& block : blocks) end = std::max(end, block.offset + block.count);
    for (const int times : covered(pieces, in, base, end * element)) CHECK(times <= 1);
  };
  const Blocks blocks = call.blocks ? *call.blocks : Blocks{};
  all_or_nothing(true, buffers.input, blocks.input);
  all_or_nothing(false, buffers.output, blocks.output);
}

TEST_CASE("every even collective, root and count: each element once, cut alike on all ranks") {
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather, Collective::kBroadcast,
        Collective::kReduce, Collective::kGather, Collective::kScatter, Collective::kAllToAll}) {
    for (const uint64_t count : {0, 1, 5, 64, 1000}) {
      for (const uint64_t piece_bytes : {uint64_t{1}, uint64_t{100}, uint64_t{4096}, kPieceBytes}) {
        CollectiveCase what;
        what.collective = collective;
        what.world = 3;
        what.root = 1;
        what.count = count;
        std::vector<uint64_t> counts[3];
        for (int rank = 0; rank < 3; ++rank) check(what, rank, piece_bytes, counts[rank]);
        CHECK(counts[0] == counts[1]);
        CHECK(counts[0] == counts[2]);
      }
    }
  }
}

TEST_CASE("uneven calls: every element once, and both ranks of a block cut it alike") {
  // counts[r][p]: what rank r sends to p.
  const std::vector<std::vector<uint64_t>> counts{{3, 0, 1000}, {70, 1, 5}, {0, 4000, 2}};
  for (const uint64_t piece_bytes : {uint64_t{24}, uint64_t{1000}, uint64_t{1} << 20}) {
    CAPTURE(piece_bytes);
    std::vector<std::vector<Piece>> of_rank;
    std::vector<uint32_t> calls;
    for (int rank = 0; rank < 3; ++rank) {
      std::vector<uint64_t> from;
      for (int peer = 0; peer < 3; ++peer) from.push_back(counts[static_cast<size_t>(peer)][static_cast<size_t>(rank)]);
      std::vector<std::byte> in(8 * 5000), out(8 * 5000);
      const Call call{.collective = Collective::kAllToAll,
                      .input = in.data(),
                      .output = out.data(),
                      .dtype = DType::kInt64,
                      .uneven = true,
                      .input_counts = counts[static_cast<size_t>(rank)],
                      .output_counts = from};
      std::vector<Piece> pieces = cut_pieces(check_call(call, rank, 3), buffers_of(call), rank, 3, piece_bytes);
      uint64_t sent = 0, received = 0;
      for (const uint64_t count : counts[static_cast<size_t>(rank)]) sent += count;
      for (const uint64_t count : from) received += count;
      for (const int times : covered(pieces, true, in.data(), 8 * sent)) CHECK(times == 1);
      for (const int times : covered(pieces, false, out.data(), 8 * received)) CHECK(times == 1);
      for (size_t i = 0; i + 1 < pieces.size(); ++i) CHECK(pieces[i].empty_calls == 0);
      calls.push_back(static_cast<uint32_t>(pieces.size()) + pieces.back().empty_calls);
      of_rank.push_back(std::move(pieces));
    }
    CHECK(calls == std::vector<uint32_t>(3, static_cast<uint32_t>(kPairPieces)));
    for (size_t from = 0; from < 3; ++from) {
      for (size_t to = 0; to < 3; ++to) {
        for (size_t i = 0; i < std::min(of_rank[from].size(), of_rank[to].size()); ++i) {
          CHECK(of_rank[from][i].input_counts[to] == of_rank[to][i].output_counts[from]);
        }
      }
    }
  }
}

TEST_CASE("short edges: a quarter of a piece comes first, and one comes last") {
  CheckedCall call;
  call.collective = Collective::kAllReduce;
  call.dtype = DType::kFloat32;
  std::vector<uint64_t> counts;
  for (const uint64_t count : {40u, 85u}) {
    call.count = count;
    for (const Piece& piece : cut_pieces(call, {}, 0, 2, 160)) counts.push_back(piece.count);
  }
  CHECK(counts == std::vector<uint64_t>{40, 7, 22, 29, 20, 7});
}

TEST_CASE("large calls take at most so many pieces, however large") {
  CheckedCall call;
  call.collective = Collective::kAllReduce;
  call.dtype = DType::kUint8;
  call.count = uint64_t{1} << 40;
  CHECK(cut_pieces(call, {}, 0, 2).size() == kMostPieces + 2);
}

TEST_CASE("lists: every byte of every tensor once, in pieces of one type that are full but for the last of each run") {
  std::vector<std::byte> input(20'000), output(20'000);
  for (const uint64_t piece_bytes : {1, 8, 100, 4096, 1 << 20}) {
    CAPTURE(piece_bytes);
    std::vector<TensorRef> tensors;
    uint64_t at = 0;
    for (const auto& [count, dtype] : std::vector<std::pair<uint64_t, DType>>{{3, DType::kFloat32},
                                                                              {0, DType::kFloat32},
                                                                              {1000, DType::kFloat32},
                                                                              {7, DType::kInt8},
                                                                              {9, DType::kFloat64},
                                                                              {1, DType::kFloat64},
                                                                              {1500, DType::kFloat32}}) {
      tensors.push_back({input.data() + at, output.data() + at, count, dtype});
      at += count * dtype_bytes(dtype);
    }
    std::vector<Piece> pieces;
    uint64_t bytes = 0;
    for (const ListPiece& list : cut_list(tensors, piece_bytes)) {
      const uint64_t element = dtype_bytes(list.dtype);
      CHECK(list.piece.region_bytes <= std::max(element, piece_bytes));
      CHECK(list.piece.region_bytes == list.piece.count * element);
      bytes += list.piece.region_bytes;
      pieces.push_back(list.piece);
    }
    CHECK(bytes == at);
    for (const bool in : {true, false}) {
      for (const int times : covered(pieces, in, in ? input.data() : output.data(), at)) CHECK(times == 1);
    }
  }
  CHECK(cut_list({}, 100).empty());
}

}  // namespace
}  // namespace rondo::testing
