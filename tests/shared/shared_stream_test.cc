// Streams over shared memory keep the contract of byte streams, carry both directions in the same buffers, and survive
// rubbish in their flags and counters.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "tests/engine/arguments.h"
#include "tests/support/both_ways.h"
#include "tests/support/random.h"
#include "tests/support/stream_contract.h"
#include "transport/island/memory_file.h"
#include "transport/island/shared_stream_body.h"

namespace rondo::testing {
namespace {

// Both ends of the stream that the first side has made, each with a mapping of its own as in two processes, or with
// one, so that the thread sanitizer sees that they meet.
struct Pair {
  enum class Mappings { kTwo, kOne };
  explicit Pair(Mappings mappings = Mappings::kTwo, const BufferShape& shape = kSmallStreamBuffers) : shape_(shape) {
    for (const int side : {0, 1}) buffers[side] = std::make_shared<StreamBuffers>(shape);
    make(0, mappings, sides);
  }
  // Both ends of a stream that this side makes.
  void make(int maker, Mappings mappings, std::unique_ptr<ByteStream>* ends) {
    const size_t bytes = shared_stream_bytes(shape_);
    const Descriptor file = make_memory_file(bytes, Pages::kSparse);
    std::shared_ptr<Mapping> memory;
    for (const int side : {0, 1}) {
      if (!memory || mappings == Mappings::kTwo) {
        memory = std::make_shared<Mapping>(file.get(), bytes, Mapping::Touch::kLater);
      }
      memories[side] = memory->data();
      ChannelEnd end{memory,        memory->data(),
                     side == maker, std::make_shared<Bell>(),
                     lives[side],   side == 0 ? "second peer" : "first peer"};
      ends[side] = make_shared_stream(std::move(end), buffers[side]);
    }
  }
  // Two that write on a stream that each has made.
  static Pair both_ways(Mappings mappings = Mappings::kTwo, const BufferShape& shape = kSmallStreamBuffers) {
    Pair pair(mappings, shape);
    std::unique_ptr<ByteStream> back[2];
    pair.make(1, mappings, back);
    pair.sides[0] = std::make_unique<BothWays>(std::move(pair.sides[0]), std::move(back[0]));
    pair.sides[1] = std::make_unique<BothWays>(std::move(back[1]), std::move(pair.sides[1]));
    return pair;
  }
  StreamEnds ends() && {
    StreamEnds ends;
    for (const int side : {0, 1}) ends.side[side] = std::move(sides[side]);
    return ends;
  }

  std::byte* memories[2] = {};  // of the stream that was made last
  std::shared_ptr<PeerLife> lives[2] = {std::make_shared<PeerLife>(), std::make_shared<PeerLife>()};
  std::shared_ptr<StreamBuffers> buffers[2];  // of the sides; shared with their streams
  std::unique_ptr<ByteStream> sides[2];

 private:
  BufferShape shape_;
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

TEST_CASE("the contract, over two mappings of one file, by one stream and by two that share their buffers") {
  const auto [first, seeds] = seed_range(20);
  for (const auto& shape : {kStreamBuffers, kSmallStreamBuffers}) {
    check_stream_contract([&](uint64_t) { return Pair(Pair::Mappings::kTwo, shape).ends(); }, first, seeds);
    check_stream_contract([&](uint64_t) { return Pair::both_ways(Pair::Mappings::kTwo, shape).ends(); }, first, seeds);
  }
}

TEST_CASE("both ends by threads of their own, over one mapping and over two") {
  const auto [first, seeds] = seed_range(3);
  for (const auto mappings : {Pair::Mappings::kOne, Pair::Mappings::kTwo}) {
    check_stream_between_threads([&](uint64_t) { return Pair(mappings).ends(); }, first, seeds);
    check_stream_between_threads([&](uint64_t) { return Pair::both_ways(mappings).ends(); }, first, seeds);
  }
}

// Takes all that is there, and notes where it lay.
void take_all(ByteStream& stream, std::set<const std::byte*>& places) {
  for (auto there = stream.view(); !there.empty(); there = stream.view()) {
    places.insert(there.data());
    stream.consume(there.size());
  }
}

TEST_CASE("a rank answers in the buffers that it has read last") {
  const std::vector<std::byte> piece(kSmallStreamBuffers.bytes);
  for (const size_t window : {1, 3, 12}) {
    CAPTURE(window);
    Pair pair = Pair::both_ways(Pair::Mappings::kOne);
    std::set<const std::byte*> places;
    for (int round = 0; round < 400; ++round) {
      if (round == 50) places.clear();  // it has learned how many
      for (const int side : {0, 1}) {
        for (size_t i = 0; i < window; ++i) REQUIRE(pair.sides[side]->write_whole(piece, {}));
        take_all(*pair.sides[1 - side], places);
      }
    }
    CHECK_EQ(places.size(), window);
  }
}

TEST_CASE("after pieces that were stored past the caches a rank answers in few buffers again") {
  const std::vector<std::byte> piece(kStreamBuffers.bytes);
  Pair pair = Pair::both_ways(Pair::Mappings::kOne, kStreamBuffers);
  std::set<const std::byte*> places;
  const auto exchange = [&](Stores stores, size_t window, int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (const int side : {0, 1}) {
        REQUIRE(pair.sides[side]->set_stores(stores));
        for (size_t i = 0; i < window; ++i) REQUIRE(pair.sides[side]->write_whole(piece, {}));
        take_all(*pair.sides[1 - side], places);
      }
    }
  };
  exchange(Stores::kStreamed, 12, 50);
  exchange(Stores::kCached, 3, 50);
  places.clear();
  exchange(Stores::kCached, 3, 50);
  CHECK_LE(places.size(), 12);  // the last window lies there
}

TEST_CASE("what goes one way passes through nearly all buffers, and the answers of a stream need none") {
  Pair pair(Pair::Mappings::kOne, kStreamBuffers);
  const std::vector<std::byte> piece(kStreamBuffers.bytes), answer(64);
  std::set<const std::byte*> places, answers;
  for (int round = 0; round < 1000; ++round) {
    REQUIRE(pair.sides[0]->write_whole(piece, {}));
    take_all(*pair.sides[1], places);
    REQUIRE(pair.sides[1]->write_whole(answer, {}));
    take_all(*pair.sides[0], answers);
  }
  CHECK_EQ(places.size(), kStreamBuffers.count);
  CHECK_EQ(answers.size(), kStreamPieces);
}

TEST_CASE("long flows in turn: whose pieces are all taken has a buffer for the next") {
  const std::vector<std::byte> piece(kSmallStreamBuffers.bytes);
  Pair pair = Pair::both_ways(Pair::Mappings::kOne);
  std::set<const std::byte*> places;
  for (int turn = 0; turn < 10; ++turn) {
    const int side = turn % 2;
    for (int i = 0; i < 300; ++i) {
      REQUIRE(pair.sides[side]->write_whole(piece, {}));
      take_all(*pair.sides[1 - side], places);
    }
  }
}

TEST_CASE("after any history, once both have read all, a message as long as a sender may rely on goes at once") {
  const auto [first, seeds] = seed_range(20);
  for (const BufferShape& shape : {kStreamBuffers, kSmallStreamBuffers}) {
    const std::vector<std::byte> piece(shape.bytes), message(kTakenByMemory);
    for (uint64_t seed = first; seed < first + seeds; ++seed) {
      CAPTURE(shape.bytes);
      CAPTURE(seed);
      Random random(seed);
      Pair pair = Pair::both_ways(Pair::Mappings::kOne, shape);
      std::set<const std::byte*> places;
      const auto read = [&](int side) { take_all(*pair.sides[1 - side], places); };
      for (int round = 0; round < 50; ++round) {
        const int side = random.chance(50) ? 0 : 1;
        const bool at_once = random.chance(50);
        for (size_t pieces = random.below(2 * shape.count); pieces > 0; --pieces) {
          if (!pair.sides[side]->write_whole(piece, {}) || at_once) read(side);
        }
        for (const int writer : {0, 1}) read(writer);
        for (const int writer : {0, 1}) {
          if (random.chance(70)) continue;
          REQUIRE(pair.sides[writer]->write_whole(message, {}));
          read(writer);
        }
      }
    }
  }
}

TEST_CASE("whatever lies unread in the other direction, what is read is followed by more") {
  const auto [first, seeds] = seed_range(20);
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    Pair pair = Pair::both_ways();
    uint64_t written[2] = {}, taken[2] = {};  // by the side that writes
    for (int round = 0; round < 30; ++round) {
      const int side = random.chance(50) ? 0 : 1;
      const uint64_t end = written[1 - side] + 300'000;
      while (const size_t moved = write_some(*pair.sides[side], written[side], 1 + random.below(100'000), random)) {
        written[side] += moved;
        if (random.chance(10)) break;
      }
      while (written[1 - side] < end) {
        const size_t moved = write_some(*pair.sides[1 - side], written[1 - side], 1 + random.below(50'000), random);
        written[1 - side] += moved;
        REQUIRE((moved > 0 || taken[1 - side] < written[1 - side]));
        while (taken[1 - side] < written[1 - side]) {
          REQUIRE(take_some(*pair.sides[side], &taken[1 - side], 1 + random.below(100'000), random));
        }
      }
    }
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
  CHECK_GT(written, 8 * kSmallStreamBuffers.count * kSmallStreamBuffers.bytes);
}

TEST_CASE("a writer without buffers goes on once enough is taken, and at the latest when all is") {
  Random random(3);
  Pair pair;
  constexpr size_t kAll = kSmallStreamBuffers.count * kSmallStreamBuffers.bytes;
  uint64_t written = 0, taken = 0;
  while (const size_t moved = write_some(*pair.sides[0], written, 100'000, random)) written += moved;
  REQUIRE_GE(written, kAll / 2);
  REQUIRE_LE(written, kAll + kStreamPieces * StreamPiece::kSmallBytes);
  while (taken < written) REQUIRE(take_some(*pair.sides[1], &taken, 1000, random));
  CHECK_GE(write_some(*pair.sides[0], written, kAll, random), kAll / 2);
}

TEST_CASE("write_whole: a message of many pieces goes at once where it finds room, and else not at all") {
  constexpr size_t kHead = 64;
  for (const BufferShape& shape : {kStreamBuffers, kSmallStreamBuffers}) {
    const size_t kept = shape.least_kept() + shape.at_once();
    for (const size_t bytes : {size_t{shape.bytes} + 1, size_t{100'000}, size_t{256 * 1024}}) {
      CAPTURE(shape.bytes);
      CAPTURE(bytes);
      Random random(bytes);
      Pair pair(Pair::Mappings::kTwo, shape);
      uint64_t written = 0, taken = 0;
      for (int round = 0; round < 200; ++round) {
        std::vector<std::byte> data(bytes);
        for (size_t i = 0; i < bytes; ++i) data[i] = byte_at(written + i);
        const bool empty = written == taken;
        const bool gone = pair.sides[0]->write_whole({data.data(), kHead}, {data.data() + kHead, bytes - kHead});
        if (empty && bytes <= (shape.count - kept) * shape.bytes) REQUIRE(gone);
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

TEST_CASE("a piece is lent whole, beside its flag or in a buffer, and what is taken of it stays taken") {
  Random random(11);
  Pair pair;
  uint64_t written = 0, taken = 0;
  for (const size_t bytes : {1, 8, 119, 120, 121, 128, 4160, 8192}) {
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
  return {memory + begin, {}, begin};
}

constexpr uint64_t piece_flag(uint64_t number, uint32_t bytes, uint32_t buffer) {
  return cell_flag(number, StreamPiece{bytes, buffer}.shown());
}

TEST_CASE("a flag that cannot be ends the stream, and nothing of it is lent or read") {
  constexpr uint32_t kCount = kSmallStreamBuffers.count;
  const uint64_t rubbish[] = {cell_flag(2, 100),
                              cell_flag(1, 0),
                              piece_flag(1, kSmallStreamBuffers.bytes + 1, 0),
                              piece_flag(1, 100, 1),        // a small one has no buffer
                              piece_flag(1, 1000, kCount),  // of a stream that is not there
                              piece_flag(1, 1000, 2 * kCount),
                              cell_flag(1, 0xffffffff),
                              cell_flag(64, 1),
                              cell_flag(~uint64_t{0}, 8),
                              1ull << 32 | 1ull << 31,
                              ~uint64_t{0}};
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

// A hostile peer's piece, to `side`.
bool accepts(Pair& pair, int side, uint64_t number, uint32_t bytes, uint32_t buffer) {
  const size_t begin = ChannelLayout<StreamCells>({}).begin(side == 1);
  CellRing<StreamCells, CellOrders>(pair.memories[0] + begin, {}, begin)
      .flag(number)
      .store(piece_flag(number, bytes, buffer));
  const bool lent = pair.sides[side]->view().size() == bytes;
  if (lent) pair.sides[side]->consume(bytes);
  std::byte byte;
  const iovec part{&byte, 1};
  CHECK_EQ(pair.sides[side]->read(&part, 1) == -1, !lent);
  return lent;
}

TEST_CASE("a buffer is taken from nobody who does not hold it, and none from who only answers") {
  Pair pair;
  CHECK(accepts(pair, 1, 1, 1000, 0));
  CHECK(accepts(pair, 1, 2, 1000, 1));
  CHECK_FALSE(accepts(pair, 1, 3, 1000, 0));  // it was sent before, and never given back
  Pair other;
  CHECK(accepts(other, 0, 1, 100, 0));
  CHECK_FALSE(accepts(other, 0, 2, 1000, 0));
}

TEST_CASE("what cannot be given back ends the stream") {
  const BufferShape& shape = kSmallStreamBuffers;
  struct Given {
    uint64_t count;
    uint16_t buffer;
  };
  for (const Given given : {Given{1, 31}, {1, 0xffff}, {1, 32}, {65, 0}, {~uint64_t{0}, 0}, {2, 0}}) {
    CAPTURE(given.count);
    CAPTURE(given.buffer);
    Pair pair;
    const std::vector<std::byte> piece(shape.bytes);
    for (int i = 0; i < 31; ++i) REQUIRE(pair.sides[0]->write_whole(piece, {}));  // all but buffer 31
    std::byte* const part = pair.memories[1] + ChannelLayout<StreamCells>({}).bytes;
    for (int i = 0; i < 64; ++i) {
      reinterpret_cast<std::atomic<uint16_t>*>(part + kCellBytes)[i].store(given.buffer);
    }
    reinterpret_cast<std::atomic<uint64_t>*>(part)->store(given.count);
    CHECK_FALSE(pair.sides[0]->write_whole(piece, piece));  // more than is left, so it looks
    const iovec one{const_cast<std::byte*>(piece.data()), 1};
    REQUIRE_EQ(pair.sides[0]->write(&one, 1), -1);
    CHECK_EQ(pair.sides[0]->error().code, ErrorCode::kProtocol);
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
