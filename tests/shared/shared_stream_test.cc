// Streams over shared memory carry every byte once and in order, by read() and by view(), and survive rubbish in their
// flags and counters.
#include "transport/shared/shared_stream.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/support/random.h"
#include "transport/shared/memory_file.h"

namespace rondo::testing {
namespace {

// Both ends, each with a mapping of its own as in two processes, or with one, so that the thread sanitizer sees that
// they meet.
struct Pair {
  enum class Mappings { kTwo, kOne };
  explicit Pair(Mappings mappings = Mappings::kTwo, size_t ring_bytes = kSmallByteRingBytes) {
    const Descriptor file = make_memory_file(shared_stream_bytes(), Pages::kSparse);
    std::shared_ptr<Mapping> memory;
    for (const int side : {0, 1}) {
      if (!memory || mappings == Mappings::kTwo) {
        memory = std::make_shared<Mapping>(file.get(), shared_stream_bytes(), Mapping::Touch::kLater);
      }
      memories[side] = memory->data();
      SharedStreamEnd end;
      end.data = memory->data();
      end.memory = memory;
      end.maker = side == 0;
      end.bell = std::make_shared<RemoteBell>();
      end.life = lives[side];
      end.peer_name = "the other side";
      end.ring_bytes = ring_bytes;
      sides[side] = make_shared_stream(std::move(end));
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

TEST_CASE("a stream carries every byte in order, in parts of any size, full and empty in turn") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    Pair pair;
    for (const int from : {0, 1}) {
      uint64_t written = 0, taken = 0;
      const size_t largest = seed % 3 == 0 ? kSmallByteRingBytes + 1000 : seed % 3 == 1 ? 200 : 70'000;
      for (int i = 0; i < 300; ++i) {
        if (random.chance(60)) written += write_some(*pair.sides[from], written, random.below(largest), random);
        if (random.chance(50)) REQUIRE(take_some(*pair.sides[1 - from], &taken, 1 + random.below(largest), random));
        REQUIRE_LE(written - taken, kSmallByteRingBytes);
      }
      for (int i = 0; i < 10'000 && taken < written; ++i) {
        REQUIRE(take_some(*pair.sides[1 - from], &taken, largest, random));
      }
      REQUIRE_EQ(taken, written);
      REQUIRE_GT(written, 1000);
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

TEST_CASE("two threads: what is seen is whole") {
  for (const bool in_place : {true, false}) {
    CAPTURE(in_place);
    Pair pair(Pair::Mappings::kOne, in_place ? kByteRingBytes : kSmallByteRingBytes);
    constexpr uint64_t kAll = 8 << 20;
    std::thread writer([&] {
      Random random(7);
      for (uint64_t at = 0; at < kAll;) {
        const size_t want = std::min<uint64_t>(kAll - at, 1 + random.below(60'000));
        const size_t moved = write_some(*pair.sides[0], at, want, random);
        if (moved == 0) std::this_thread::yield();
        at += moved;
      }
    });
    std::vector<std::byte> data(50'000);
    uint64_t taken = 0, wrong = 0;
    while (taken < kAll) {
      size_t bytes = 0;
      if (in_place) {
        const auto there = pair.sides[1]->view();
        bytes = std::min(there.size(), data.size());
        std::copy_n(there.data(), bytes, data.data());
        if (bytes > 0) pair.sides[1]->consume(bytes);
      } else {
        const iovec part{data.data(), data.size()};
        bytes = static_cast<size_t>(std::max(0l, pair.sides[1]->read(&part, 1)));
      }
      for (size_t i = 0; i < bytes; ++i) wrong += data[i] != byte_at(taken + i);
      if (bytes == 0) std::this_thread::yield();
      taken += bytes;
    }
    writer.join();
    CHECK_EQ(wrong, 0);
  }
}

TEST_CASE("write_whole writes all or nothing") {
  Random random(12);
  Pair pair;
  uint64_t written = 0, taken = 0;
  const auto write_whole = [&](size_t bytes) {
    std::vector<std::byte> data(bytes);
    for (size_t i = 0; i < bytes; ++i) data[i] = byte_at(written + i);
    const iovec parts[] = {{data.data(), bytes / 3}, {data.data() + bytes / 3, bytes - bytes / 3}};
    if (!pair.sides[0]->write_whole(parts, 2)) return false;
    written += bytes;
    return true;
  };
  for (int round = 0; round < 200; ++round) {
    while (write_whole(1 + random.below(kStreamPieceBytes))) continue;
    REQUIRE_GT(written, taken);
    for (int i = 0; i < 20 && taken < written; ++i) REQUIRE(take_some(*pair.sides[1], &taken, 9000, random));
  }
  while (taken < written) REQUIRE(take_some(*pair.sides[1], &taken, 9000, random));
  CHECK(pair.sides[1]->view().empty());
  CHECK_FALSE(write_whole(kStreamPieceBytes + 1));
  CHECK_FALSE(write_whole(0));
  CHECK(pair.sides[1]->view().empty());
  pair.sides[1].reset();
  CHECK_FALSE(write_whole(8));
}

// Where `taken` and the flag of a cell of the first ring are.
constexpr size_t kTakenAt = 128;
constexpr size_t flag_at(size_t cell) { return 256 + cell * 128; }
constexpr uint64_t flag(uint64_t number, uint64_t bytes) { return (number << 32) | bytes; }

void spoil(std::byte* memory, size_t at, uint64_t value) { std::memcpy(memory + at, &value, sizeof value); }

TEST_CASE("a flag that cannot be ends the stream, and nothing of it is lent or read") {
  const uint64_t rubbish[] = {flag(2, 100),
                              flag(1, 0),
                              flag(1, kStreamPieceBytes + 1),
                              flag(1, 0xffffffff),
                              flag(64, 1),
                              flag(~uint64_t{0}, 8),
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
      spoil(pair.memories[0], flag_at(0), later ? value + flag(kStreamPieces, 0) : value);
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
    spoil(pair.memories[1], kTakenAt, value);
    std::byte data[64] = {};
    const iovec part{data, sizeof data};
    REQUIRE_EQ(pair.sides[0]->write(&part, 1), -1);
    CHECK_EQ(pair.sides[0]->error().code, ErrorCode::kProtocol);
  }
}

TEST_CASE("what was written before the end is read before it") {
  Random random(9);
  Pair pair;
  REQUIRE_EQ(write_some(*pair.sides[0], 0, 5000, random), 5000);
  pair.sides[0].reset();
  uint64_t taken = 0;
  while (taken < 5000) REQUIRE(take_some(*pair.sides[1], &taken, 700, random));
  std::byte data[8];
  const iovec part{data, sizeof data};
  CHECK(pair.sides[1]->view().empty());
  CHECK_EQ(pair.sides[1]->read(&part, 1), -1);
  CHECK_EQ(pair.sides[1]->error().code, ErrorCode::kPeerLost);
  CHECK_EQ(pair.sides[1]->write(&part, 1), -1);
}

}  // namespace
}  // namespace rondo::testing
