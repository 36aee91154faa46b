// Streams over shared memory keep the contract of byte streams, and survive rubbish in their flags and counters.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/engine/arguments.h"
#include "tests/support/random.h"
#include "tests/support/stream_contract.h"
#include "transport/island/memory_file.h"
#include "transport/island/shared_stream_body.h"

namespace rondo::testing {
namespace {

// Both ends, each with a mapping of its own as in two processes, or with one, so that the thread sanitizer sees that
// they meet.
struct Pair {
  enum class Mappings { kTwo, kOne };
  explicit Pair(Mappings mappings = Mappings::kTwo, size_t ring_bytes = kSmallByteRingBytes) {
    const size_t bytes = shared_stream_bytes(ring_bytes);
    const Descriptor file = make_memory_file(bytes, Pages::kSparse);
    std::shared_ptr<Mapping> memory;
    for (const int side : {0, 1}) {
      if (!memory || mappings == Mappings::kTwo) {
        memory = std::make_shared<Mapping>(file.get(), bytes, Mapping::Touch::kLater);
      }
      memories[side] = memory->data();
      ChannelEnd end{memory,      memory->data(),
                     side == 0,   std::make_shared<Bell>(),
                     lives[side], side == 0 ? "second peer" : "first peer"};
      sides[side] = make_shared_stream(std::move(end), ring_bytes);
    }
  }
  std::byte* memories[2] = {};
  std::shared_ptr<PeerLife> lives[2] = {std::make_shared<PeerLife>(), std::make_shared<PeerLife>()};
  std::unique_ptr<ByteStream> sides[2];
};

std::byte byte_at(uint64_t position) { return static_cast<std::byte>(position * 2654435761u >> 13); }

// Writes bytes [at, at + at most bytes) of the sequence, in some parts.
size_t write_some(ByteStream& stream, uint64_t at, size_t bytes, Random& random) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = byte_at(at + i);
  const size_t split = random.below(bytes + 1);
  const iovec parts[] = {{data.data(), split}, {data.data() + split, 0}, {data.data() + split, bytes - split}};
  const long moved = stream.write(parts, 3);
  return moved < 0 ? 0 : static_cast<size_t>(moved);
}

// Takes some of what is there, by one way or the other; false if a byte is wrong.
bool take_some(ByteStream& stream, uint64_t* at, size_t most, Random& random) {
  if (random.chance(50)) {
    const auto there = stream.view();
    const size_t bytes = std::min(there.size(), most);
    for (size_t i = 0; i < bytes; ++i) {
      if (there[i] != byte_at(*at + i)) return false;
    }
    if (bytes > 0) stream.consume(bytes);
    *at += bytes;
    return true;
  }
  std::vector<std::byte> data(most);
  const iovec parts[] = {{data.data(), most / 2}, {data.data() + most / 2, most - most / 2}};
  const long got = stream.read(parts, 2);
  if (got < 0) return false;
  for (long i = 0; i < got; ++i) {
    if (data[static_cast<size_t>(i)] != byte_at(*at + static_cast<uint64_t>(i))) return false;
  }
  *at += static_cast<uint64_t>(got);
  return true;
}

StreamEnds ends_of(Pair::Mappings mappings, size_t ring_bytes) {
  Pair pair(mappings, ring_bytes);
  StreamEnds ends;
  for (const int side : {0, 1}) ends.side[side] = std::move(pair.sides[side]);
  return ends;
}

TEST_CASE("the contract, over two mappings of one file") {
  const auto make = [](uint64_t seed) {
    return ends_of(Pair::Mappings::kTwo, seed % 2 == 0 ? kByteRingBytes : kSmallByteRingBytes);
  };
  const auto [first, seeds] = seed_range(20);
  check_stream_contract(make, first, seeds);
}

TEST_CASE("both ends by threads of their own, over one mapping and over two") {
  const auto [first, seeds] = seed_range(3);
  for (const auto mappings : {Pair::Mappings::kOne, Pair::Mappings::kTwo}) {
    check_stream_between_threads([&](uint64_t) { return ends_of(mappings, kSmallByteRingBytes); }, first, seeds);
  }
}

TEST_CASE("set_stores: a stream that changes between the kinds of stores carries every byte in order") {
  Random random(5);
  Pair pair;
  uint64_t written = 0, taken = 0;
  for (int i = 0; i < 2000; ++i) {
    REQUIRE(pair.sides[0]->set_stores(random.chance(50) ? Stores::kStreamed : Stores::kCached));
    written += write_some(*pair.sides[0], written, random.below(70'000), random);
    REQUIRE(take_some(*pair.sides[1], &taken, 1 + random.below(70'000), random));
  }
  while (taken < written) REQUIRE(take_some(*pair.sides[1], &taken, 70'000, random));
  CHECK_GT(written, 8 * kSmallByteRingBytes);
}

TEST_CASE("a writer of a full ring goes on once enough is taken, and at the latest when all is") {
  Random random(3);
  Pair pair;
  constexpr size_t kRing = kSmallByteRingBytes;
  uint64_t written = 0, taken = 0;
  while (const size_t moved = write_some(*pair.sides[0], written, 100'000, random)) written += moved;
  REQUIRE_GE(written, kRing - 2 * kStreamPieceBytes);
  REQUIRE_LE(written, kRing);
  while (taken < written) REQUIRE(take_some(*pair.sides[1], &taken, 1000, random));
  CHECK_GE(write_some(*pair.sides[0], written, kRing, random), kRing / 2);
}

TEST_CASE("write_whole: a message of many pieces goes at once where it finds room, and else not at all") {
  constexpr size_t kHead = 64;
  for (const size_t ring : {kByteRingBytes, kSmallByteRingBytes}) {
    for (const size_t bytes : {kStreamPieceBytes + 1, size_t{100'000}, size_t{256 * 1024}}) {
      CAPTURE(ring);
      CAPTURE(bytes);
      Random random(bytes);
      Pair pair(Pair::Mappings::kTwo, ring);
      uint64_t written = 0, taken = 0;
      for (int round = 0; round < 200; ++round) {
        std::vector<std::byte> data(bytes);
        for (size_t i = 0; i < bytes; ++i) data[i] = byte_at(written + i);
        const bool empty = written == taken;
        const bool gone = pair.sides[0]->write_whole({data.data(), kHead}, {data.data() + kHead, bytes - kHead});
        // A hole at the ring's end may be as long as a piece.
        if (empty && bytes + 2 * kStreamPieceBytes <= ring) REQUIRE(gone);
        if (bytes >= ring) REQUIRE_FALSE(gone);
        if (gone) written += bytes;
        while (!gone && taken < written) REQUIRE(take_some(*pair.sides[1], &taken, bytes, random));
        if (taken == written) REQUIRE(pair.sides[1]->view().empty());
      }
    }
  }
}

TEST_CASE("short writes fill the cells, and go on once some are taken") {
  Random random(4);
  Pair pair;
  uint64_t written = 0, taken = 0;
  while (const size_t moved = write_some(*pair.sides[0], written, 72, random)) written += moved;
  REQUIRE_EQ(written, kStreamPieces * 72);
  for (int round = 0; round < 1000; ++round) {
    while (taken < written) REQUIRE(take_some(*pair.sides[1], &taken, 72, random));
    while (const size_t moved = write_some(*pair.sides[0], written, 1 + random.below(200), random)) written += moved;
    REQUIRE_GT(written, taken);
  }
}

TEST_CASE("a piece is lent whole, beside its flag or in the ring, and what is taken of it stays taken") {
  Random random(11);
  Pair pair;
  uint64_t written = 0, taken = 0;
  for (const size_t bytes : {1, 8, 119, 120, 121, 128, 4160, 16'384}) {
    CAPTURE(bytes);
    REQUIRE_EQ(write_some(*pair.sides[0], written, bytes, random), bytes);
    written += bytes;
    REQUIRE_EQ(pair.sides[1]->view().size(), bytes);
    if (bytes > 1) {
      CHECK_EQ(pair.sides[1]->view()[0], byte_at(taken));
      pair.sides[1]->consume(1);
      ++taken;
      REQUIRE_EQ(pair.sides[1]->view().size(), bytes - 1);
    }
    while (taken < written) REQUIRE(take_some(*pair.sides[1], &taken, 7000, random));
  }
}

// The first side's ring, as that side or a hostile one may write it.
CellRing<StreamCells, CellOrders> ring_of(std::byte* memory) {
  const size_t begin = ChannelLayout<StreamCells>::kFirst;
  return {memory + begin, {kSmallByteRingBytes}, begin};
}

TEST_CASE("a flag that cannot be ends the stream, and nothing of it is lent or read") {
  const uint64_t rubbish[] = {cell_flag(2, 100),        cell_flag(1, 0),  cell_flag(1, kStreamPieceBytes + 1),
                              cell_flag(1, 0xffffffff), cell_flag(64, 1), cell_flag(~uint64_t{0}, 8),
                              1ull << 32 | 1ull << 31,  ~uint64_t{0}};
  for (const bool later : {false, true}) {
    for (const uint64_t value : rubbish) {
      CAPTURE(value);
      CAPTURE(later);
      Random random(5);
      Pair pair;
      uint64_t taken = 0;
      if (later) {  // in the second lap of the cells, where an old flag stands
        uint64_t written = 0;
        while (written < kStreamPieces * 10) written += write_some(*pair.sides[0], written, 10, random);
        while (taken < written) REQUIRE(take_some(*pair.sides[1], &taken, 10, random));
      }
      CHECK(pair.sides[1]->view().empty());
      ring_of(pair.memories[0]).flag(1).store(later ? value + cell_flag(kStreamPieces, 0) : value);
      CHECK(pair.sides[1]->view().empty());
      std::byte data[64];
      const iovec part{data, sizeof data};
      REQUIRE_EQ(pair.sides[1]->read(&part, 1), -1);
      CHECK_EQ(pair.sides[1]->error().code, ErrorCode::kProtocol);
      CHECK(pair.sides[1]->view().empty());
      CHECK_EQ(pair.sides[1]->write(&part, 1), -1);
    }
  }
}

TEST_CASE("a count of taken pieces that cannot be ends the stream") {
  for (const uint64_t value : {uint64_t{1} << 20, ~uint64_t{0}, uint64_t{3}}) {
    CAPTURE(value);
    Random random(5);
    Pair pair;
    uint64_t written = 0, taken = 0;
    while (const size_t moved = write_some(*pair.sides[0], written, 10, random)) written += moved;
    if (value == 3) {  // fewer than before
      while (taken < written) REQUIRE(take_some(*pair.sides[1], &taken, 10, random));
      while (const size_t moved = write_some(*pair.sides[0], written, 10, random)) written += moved;
    }
    ring_of(pair.memories[1]).taken().store(value);
    std::byte data[64] = {};
    const iovec part{data, sizeof data};
    REQUIRE_EQ(pair.sides[0]->write(&part, 1), -1);
    CHECK_EQ(pair.sides[0]->error().code, ErrorCode::kProtocol);
  }
}

}  // namespace
}  // namespace rondo::testing
