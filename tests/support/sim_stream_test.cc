#include "tests/support/sim_stream.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/random.h"
#include "tests/support/stream_contract.h"

namespace rondo::testing {
namespace {

std::vector<uint8_t> pattern(size_t bytes, uint64_t seed) {
  Random random(seed);
  std::vector<uint8_t> data(bytes);
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(random.next());
  return data;
}

// Writes `data` in three parts a call; true when all of it is written.
struct Writer {
  ByteStream& stream;
  std::vector<uint8_t> data;
  size_t done = 0;
  bool over = false;

  void step() {
    while (done < data.size() && !over) {
      const size_t left = data.size() - done;
      const size_t third = left / 3;
      const iovec parts[3] = {
          {data.data() + done, third}, {data.data() + done + third, 0}, {data.data() + done + third, left - third}};
      const long moved = stream.write(parts, 3);
      over = moved < 0;
      if (moved <= 0) return;
      done += static_cast<size_t>(moved);
    }
  }
};

struct Reader {
  ByteStream& stream;
  std::vector<uint8_t> data = {};
  bool over = false;

  void step() {
    while (!over) {
      uint8_t first[5], second[300];
      const iovec parts[2] = {{first, sizeof first}, {second, sizeof second}};
      const long moved = stream.read(parts, 2);
      over = moved < 0;
      if (moved <= 0) return;
      const auto head = std::min<long>(moved, sizeof first);
      data.insert(data.end(), first, first + head);
      data.insert(data.end(), second, second + (moved - head));
    }
  }
};

TEST_CASE("a simulated stream keeps the contract of streams, lending its memory and not") {
  const auto make = [](uint64_t seed) {
    const auto network = std::make_shared<SimNetwork>(seed);
    const size_t capacity = 3000 * seed;
    auto connection = network->connect({.capacity_bytes = capacity, .lends = seed % 2 == 0});
    StreamEnds ends{{std::move(connection.side[0]), std::move(connection.side[1])}};
    ends.first_name = "";  // it has none
    ends.advance = [network, capacity, id = connection.id] {
      for (const int side : {0, 1}) REQUIRE_LE(network->in_flight(id, side), capacity);
      network->advance();
    };
    return ends;
  };
  check_stream_contract(make, 1, 4);
}

// What the reader has after each tick: the whole observable run.
std::vector<size_t> run(uint64_t seed, bool with_other_traffic) {
  SimNetwork network(seed);
  auto connection = network.connect();
  auto other = network.connect();
  Writer writer{*connection.side[0], pattern(3000, 7)};
  Reader reader{*connection.side[1]};
  Writer noise{*other.side[1], pattern(3000, 8)};
  std::vector<size_t> sizes;
  for (int tick = 0; tick < 200; ++tick, network.advance()) {
    if (with_other_traffic) noise.step();
    writer.step();
    reader.step();
    sizes.push_back(reader.data.size());
  }
  return sizes;
}

TEST_CASE("a run depends on its seed and on nothing else") {
  CHECK(run(1, false) == run(1, false));
  CHECK(run(1, false) == run(1, true));
  CHECK(run(1, false) != run(2, false));
}

TEST_CASE("transfers are partial, refused at times, and reordered between connections") {
  SimNetwork network(3);
  auto connection = network.connect();
  const auto data = pattern(16, 1);
  const iovec part{const_cast<uint8_t*>(data.data()), data.size()};
  int refused = 0, crumbs = 0, whole = 0;
  for (int i = 0; i < 500; ++i) {
    const long moved = connection.side[0]->write(&part, 1);
    refused += moved == 0;
    crumbs += moved == 1;
    whole += moved == 16;
  }
  CHECK_GT(refused, 0);
  CHECK_GT(crumbs, 0);
  CHECK_GT(whole, 0);

  int overtaken = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SimNetwork both(seed);
    auto first = both.connect({.refuse_percent = 0});
    auto second = both.connect({.refuse_percent = 0});
    const iovec one{const_cast<uint8_t*>(data.data()), 1};
    REQUIRE_EQ(first.side[0]->write(&one, 1), 1);
    REQUIRE_EQ(second.side[0]->write(&one, 1), 1);
    uint8_t byte;
    const iovec out{&byte, 1};
    while (true) {
      const long early = second.side[1]->read(&out, 1);
      const long due = first.side[1]->read(&out, 1);
      if (early == 1 && due == 0) ++overtaken;
      if (early == 1 || due == 1) break;
      both.advance();
    }
  }
  CHECK_GT(overtaken, 5);
  CHECK_LT(overtaken, 45);
}

TEST_CASE("a cut after k bytes lets exactly k through; close delivers them, reset what had arrived") {
  for (SimCut how : {SimCut::kClose, SimCut::kReset}) {
    for (uint64_t bytes : {0u, 1u, 63u, 500u, 1999u}) {
      CAPTURE(bytes);
      SimNetwork network(bytes + 1);
      auto connection = network.connect();
      network.cut_after(connection.id, bytes, how);
      Writer writer{*connection.side[0], pattern(2000, 5)};
      Reader reader{*connection.side[1]};
      for (int tick = 0; tick < 1000; ++tick, network.advance()) {
        writer.step();
        reader.step();
      }
      CHECK(writer.over);
      CHECK(reader.over);
      CHECK_EQ(writer.done, bytes);
      if (how == SimCut::kClose) CHECK_EQ(reader.data.size(), bytes);
      CHECK_LE(reader.data.size(), bytes);
      CHECK(std::equal(reader.data.begin(), reader.data.end(), writer.data.begin()));
      CHECK_EQ(connection.side[1]->error().code, ErrorCode::kPeerLost);
      CHECK_FALSE(connection.side[0]->error().message.empty());
    }
  }
}

TEST_CASE("a stall holds one direction only, and ends") {
  SimNetwork network(4);
  auto connection = network.connect({.delay_ticks = 0, .refuse_percent = 0});
  network.stall(connection.id, 0, 100);
  Writer writers[2] = {{*connection.side[0], pattern(10, 1)}, {*connection.side[1], pattern(10, 2)}};
  Reader readers[2] = {{*connection.side[0]}, {*connection.side[1]}};
  for (int tick = 0; tick < 100; ++tick, network.advance()) {
    for (int side : {0, 1}) writers[side].step();
    for (int side : {0, 1}) readers[side].step();
    REQUIRE(readers[1].data.empty());
  }
  CHECK_EQ(readers[0].data.size(), 10);
  readers[1].step();
  CHECK_EQ(readers[1].data.size(), 10);
}

TEST_CASE("a flip changes one bit of the byte that was named") {
  SimNetwork network(6);
  auto connection = network.connect();
  network.flip_after(connection.id, 0, 777);
  Writer writer{*connection.side[0], pattern(1000, 5)};
  Reader reader{*connection.side[1]};
  for (int tick = 0; tick < 1000; ++tick, network.advance()) {
    writer.step();
    reader.step();
  }
  REQUIRE_EQ(reader.data.size(), 1000);
  for (size_t i = 0; i < 1000; ++i) {
    const auto difference = static_cast<unsigned>(reader.data[i] ^ writer.data[i]);
    REQUIRE_EQ(__builtin_popcount(difference), i == 777 ? 1 : 0);
  }
}

}  // namespace
}  // namespace rondo::testing
