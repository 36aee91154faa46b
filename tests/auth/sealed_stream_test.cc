// Proves: a sealed stream carries any bytes over a stream that moves what it likes when it likes, keeps nothing back
// that counts as written, and gives out nothing that was changed on its way.
#include "transport/tcp/sealed_stream.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>

#include "tests/support/sim_stream.h"
#include "tests/support/tls_pair.h"

namespace rondo {
namespace {

using testing::SimCut;
using testing::SimNetwork;

struct Pair {
  explicit Pair(uint64_t seed, uint64_t key_bytes = TlsSession::kKeyBytes)
      : network(seed), connection(network.connect()) {
    auto [dialer, acceptor] = testing::open_sessions(key_bytes);
    end[0] = make_sealed_stream(std::move(connection.side[0]), std::move(dialer), "rank 3 (host b)");
    end[1] = make_sealed_stream(std::move(connection.side[1]), std::move(acceptor), "rank 3 (host b)");
  }
  SimNetwork network;
  SimNetwork::Connection connection;
  std::unique_ptr<ByteStream> end[2];
};

std::string noise(std::mt19937& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

TEST_CASE("all bytes of both directions arrive in order, in parts of any size") {
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Pair pair(seed, seed % 2 ? TlsSession::kKeyBytes : 20'000);
    std::string sent[2] = {noise(random, 400'000), noise(random, 3'000)}, got[2];
    size_t written[2] = {0, 0}, offered[2] = {0, 0};  // what was offered once is offered again until it is written
    for (int step = 0; step < 2'000'000 && (got[1] != sent[0] || got[0] != sent[1]); ++step, pair.network.advance()) {
      const int side = static_cast<int>(random() % 2);
      if (const size_t left = sent[side].size() - written[side]; left > 0) {
        offered[side] = std::max(offered[side], written[side] + std::min<size_t>(left, 1 + random() % 100'000));
        const size_t all = offered[side] - written[side];
        const size_t first = random() % (all + 1), second = all - first;
        const iovec parts[2] = {{sent[side].data() + written[side], first},
                                {sent[side].data() + written[side] + first, second}};
        const long moved = pair.end[side]->write(parts, 2);
        REQUIRE(moved >= 0);
        REQUIRE(static_cast<size_t>(moved) <= first + second);
        written[side] += static_cast<size_t>(moved);
      }
      char buffer[5'000];
      const iovec part{buffer, 1 + random() % sizeof buffer};
      const long moved = pair.end[side]->read(&part, 1);
      REQUIRE(moved >= 0);
      got[side].append(buffer, static_cast<size_t>(moved));
    }
    CHECK(got[1] == sent[0]);
    CHECK(got[0] == sent[1]);
  }
}

TEST_CASE("what counts as written has left: the other side reads it though the writer does nothing more") {
  Pair pair(5);
  const std::string message(150'000, 'm');
  size_t written = 0;
  std::string got;
  const auto read_some = [&] {
    char buffer[4096];
    const iovec part{buffer, sizeof buffer};
    const long moved = pair.end[1]->read(&part, 1);
    REQUIRE(moved >= 0);
    got.append(buffer, static_cast<size_t>(moved));
  };
  for (int step = 0; step < 1'000'000 && written < message.size(); ++step, pair.network.advance()) {
    const iovec part{const_cast<char*>(message.data()) + written, message.size() - written};
    const long moved = pair.end[0]->write(&part, 1);
    REQUIRE(moved >= 0);
    written += static_cast<size_t>(moved);
    read_some();
  }
  REQUIRE(written == message.size());
  for (int step = 0; step < 1'000'000 && got.size() < message.size(); ++step, pair.network.advance()) read_some();
  CHECK(got == message);
}

TEST_CASE("a bit flipped on the way ends the stream with CORRUPT, and nothing of its record is handed out") {
  for (uint64_t flip = 0; flip < 300; flip += 7) {
    CAPTURE(flip);
    Pair pair(flip + 1);
    pair.network.flip_after(pair.connection.id, 0, flip);
    const std::string record(100, 'r');
    size_t written = 0;
    std::string got;
    bool over = false;
    for (int step = 0; step < 100'000 && !over; ++step, pair.network.advance()) {
      std::string offered = record.substr(written % record.size());
      if (written < 3 * record.size()) {
        const iovec part{offered.data(), offered.size()};
        const long moved = pair.end[0]->write(&part, 1);
        if (moved > 0) written += static_cast<size_t>(moved);
      }
      char buffer[64];
      const iovec part{buffer, sizeof buffer};
      const long moved = pair.end[1]->read(&part, 1);
      over = moved < 0;
      if (moved > 0) got.append(buffer, static_cast<size_t>(moved));
      // A length that was changed to a longer one waits for bytes that never come: the stream's own end then tells.
      if (step == 50'000) pair.network.cut(pair.connection.id, SimCut::kClose);
    }
    REQUIRE(over);
    CHECK(got == std::string(got.size(), 'r'));
    constexpr size_t kHeader = 5, kOverhead = kHeader + 1 + 16;  // type, tag
    CHECK(got.size() <= (flip / (record.size() + kOverhead)) * record.size());
    const ErrorCode code = pair.end[1]->error().code;
    CHECK((code == ErrorCode::kCorrupt || code == ErrorCode::kPeerLost || code == ErrorCode::kNetwork));
    if (flip % (record.size() + kOverhead) >= kHeader) {
      CHECK(code == ErrorCode::kCorrupt);
      CHECK(pair.end[1]->error().message.find("rank 3 (host b)") != std::string::npos);
    }
  }
}

TEST_CASE("the end of the stream below is told after all that came before it") {
  Pair pair(3);
  const std::string last = "last words";
  const iovec part{const_cast<char*>(last.data()), last.size()};
  for (long moved = 0; moved == 0; pair.network.advance()) moved = pair.end[0]->write(&part, 1);
  pair.end[0].reset();
  std::string got;
  char buffer[64];
  long moved = 0;
  for (int step = 0; step < 10'000 && moved >= 0; ++step, pair.network.advance()) {
    const iovec room{buffer, sizeof buffer};
    moved = pair.end[1]->read(&room, 1);
    if (moved > 0) got.append(buffer, static_cast<size_t>(moved));
  }
  CHECK(moved == -1);
  CHECK(got == last);
  CHECK_FALSE(pair.end[1]->error().ok());
}

}  // namespace
}  // namespace rondo
