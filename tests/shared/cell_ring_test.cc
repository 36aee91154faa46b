// The ring of cells: what is written is read, for every size around each limit of where a payload lies; a cell is given
// as pieces are freed and no sooner; no two pieces under way overlap; and no number that the other side may write gives
// room or a piece.
#include "transport/island/cell_ring.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "ring/engine/island/post_board.h"
#include "tests/support/random.h"
#include "transport/island/shared_link_body.h"
#include "transport/island/shared_stream_body.h"

namespace rondo::testing {
namespace {

// Memory of one ring, and both sides of it.
template <typename Kind>
struct Pair {
  explicit Pair(const Kind& kind, size_t before)
      : layout(kind, before),
        memory(std::make_unique<Page[]>(layout.bytes / sizeof(Page) + 2)),
        ring(memory[0].bytes + before, kind, before),
        writer(ring),
        reader(ring) {}
  struct alignas(4096) Page {
    std::byte bytes[4096] = {};
  };
  size_t offset(const std::byte* place) const { return static_cast<size_t>(place - memory[0].bytes); }

  CellLayout<Kind> layout;
  std::unique_ptr<Page[]> memory;
  CellRing<Kind, CellOrders> ring;
  CellWriter<Kind, CellOrders> writer;
  CellReader<Kind, CellOrders> reader;
};

std::byte content(uint64_t number, size_t at) { return static_cast<std::byte>(number * 37 + at * 11); }

template <typename Kind>
void write_piece(Pair<Kind>& pair, size_t bytes) {
  std::byte* expected = pair.writer.place(bytes);
  std::byte* place = pair.writer.reserve(bytes);
  REQUIRE(place == expected);
  for (size_t i = 0; i < bytes; ++i) place[i] = content(pair.writer.number(), i);
  pair.writer.publish(static_cast<uint32_t>(bytes), true);
}

template <typename Kind>
bool reads_piece(Pair<Kind>& pair, size_t bytes) {
  const auto look = pair.reader.look();
  if (look.sight != Sight::kThere || look.ready() != bytes) return false;
  const std::byte* place = pair.reader.take(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    if (place[i] != content(pair.reader.number(), i)) return false;
  }
  return true;
}

// Checks a ring with pieces under way: first those of `sizes` in turn, then random ones.
template <typename Kind>
void check_ring(const Kind& kind, size_t before, const std::vector<size_t>& sizes) {
  Random random(3);
  Pair<Kind> pair(kind, before);
  std::deque<std::pair<size_t, size_t>> under_way;  // offset, bytes
  for (size_t piece = 0; piece < 4000;) {
    const size_t bytes = piece < sizes.size() ? sizes[piece] : sizes[random.below(sizes.size())];
    const bool fits = pair.writer.fits();
    if (under_way.empty()) REQUIRE(fits);
    if (fits && random.chance(70)) {
      ++piece;
      const size_t at = pair.offset(pair.writer.place(bytes));
      REQUIRE(at + bytes <= before + pair.layout.bytes);
      for (const auto& [other, length] : under_way) {
        const bool apart = at + bytes <= other || other + length <= at || bytes == 0 || length == 0;
        REQUIRE(apart);
      }
      write_piece(pair, bytes);
      under_way.emplace_back(at, bytes);
    } else if (!under_way.empty()) {
      REQUIRE(reads_piece(pair, under_way.front().second));
      under_way.pop_front();
      pair.reader.release(pair.reader.number());
      REQUIRE(pair.writer.look_at_taken().sight == Sight::kThere);
    }
    REQUIRE(pair.writer.number() - pair.writer.taken() == under_way.size());
    REQUIRE(under_way.size() <= kind.depth);
  }
  CHECK(pair.writer.look_at_taken().sight == Sight::kNothing);
}

// Both sides of each limit.
std::vector<size_t> around(const std::vector<size_t>& limits, size_t largest) {
  std::vector<size_t> sizes{0, 1};
  for (const size_t limit : limits) {
    for (const size_t size : {limit - 1, limit, limit + 1}) sizes.push_back(std::min(size, largest));
  }
  return sizes;
}

constexpr StreamCells kStream;
constexpr LinkCells kLink{3, 5000};
constexpr PostBoard::Cells kBoard;

}  // namespace

TEST_CASE("every size around what a cell and a slot hold") {
  check_ring(kLink, 128, around({104, 128, 4096, 5000}, 5000));
  check_ring(LinkCells{2, 1}, 0, {0, 1});
  check_ring(LinkCells{65, 130}, 128, around({104, 130}, 130));
  check_ring(kStream, 128, around({120}, 120));
  check_ring(kBoard, PostBoard::kCellsOffset, around({112}, 112));
}

TEST_CASE("a small payload lies beside its flag; slots begin on a page") {
  Pair<LinkCells> link(kLink, 128);
  CHECK(link.offset(link.writer.place(104)) / kCellBytes == link.offset(link.writer.place(0)) / kCellBytes);
  CHECK(link.offset(link.writer.place(105)) >= 4096);
  CHECK((128 + link.layout.slots) % 4096 == 0);
  CHECK(PostBoard::kHeadBytes <= 4096);  // small posts touch one page of a rank
}

TEST_CASE("a piece that is published in parts shows them") {
  Pair<PostBoard::Cells> pair(kBoard, PostBoard::kCellsOffset);
  pair.writer.reserve(100);
  CHECK(pair.reader.look().sight == Sight::kNothing);
  for (const uint32_t ready : {0u, 40u, 100u}) {
    pair.writer.publish(ready, ready == 100);
    REQUIRE(pair.reader.look().sight == Sight::kThere);
    CHECK(pair.reader.look().ready() == ready);
  }
}

TEST_CASE("only the number expected, and the one a lap before, are no rubbish") {
  for (const uint64_t lap : {0u, 1u, 3u}) {
    Pair<LinkCells> pair(kLink, 128);
    for (uint64_t i = 0; i < lap * kLink.depth; ++i) {
      write_piece(pair, 8);
      REQUIRE(reads_piece(pair, 8));
      pair.reader.release(pair.reader.number());
      REQUIRE(pair.writer.look_at_taken().sight == Sight::kThere);
    }
    const uint64_t next = pair.reader.number() + 1;
    const uint64_t before = lap == 0 ? 0 : next - kLink.depth;
    for (const uint64_t number :
         {uint64_t{0}, before, next - 1, next, next + 1, next + kLink.depth, next + (1u << 31), uint64_t{UINT32_MAX}}) {
      CAPTURE(number);
      pair.ring.flag(next).store(cell_flag(number, 8));
      const Sight expected = number == next ? Sight::kThere : number == before ? Sight::kNothing : Sight::kCorrupt;
      CHECK(pair.reader.look().sight == expected);
      // A reader that only asks whether the writer has come so far allows it to be a lap ahead.
      CHECK(pair.ring.look_behind(next) == (number == next + kLink.depth ? Sight::kThere : expected));
    }
  }
}

// A ring of which nothing is freed holds `depth` slices of any size.
TEST_CASE("the promise of depth") {
  Pair<LinkCells> pair(kLink, 128);
  for (uint32_t i = 0; i < kLink.depth; ++i) {
    REQUIRE(pair.writer.fits());
    write_piece(pair, kLink.slot_bytes);
  }
  CHECK_FALSE(pair.writer.fits());
  for (uint32_t i = 0; i < kLink.depth; ++i) CHECK(reads_piece(pair, kLink.slot_bytes));
}

}  // namespace rondo::testing
