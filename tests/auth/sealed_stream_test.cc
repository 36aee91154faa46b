// Proves: a sealed stream gives out nothing that was changed on its way. That it carries all bytes, and keeps back none
// that count as written: tests/transport/stream_contract_test.
#include "transport/tcp/sealed_stream.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/sim_stream.h"
#include "tests/support/tls_pair.h"

namespace rondo {
namespace {

using testing::SimCut;
using testing::SimNetwork;

struct Pair {
  explicit Pair(uint64_t seed) : network(seed), connection(network.connect()) {
    auto [dialer, acceptor] = testing::open_sessions();
    end[0] = make_sealed_stream(std::move(connection.side[0]), std::move(dialer), "rank 3 (host b)");
    end[1] = make_sealed_stream(std::move(connection.side[1]), std::move(acceptor), "rank 3 (host b)");
  }
  SimNetwork network;
  SimNetwork::Connection connection;
  std::unique_ptr<ByteStream> end[2];
};

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

}  // namespace
}  // namespace rondo
