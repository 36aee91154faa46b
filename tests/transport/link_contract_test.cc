// Every implementation of Link keeps one contract (tests/support/link_contract.h); and what a stream link does with
// bytes that no link of ours sends. `link_contract_test --seeds=2000 --first-seed=1` is the long run.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/engine/arguments.h"
#include "tests/support/link_contract.h"
#include "tests/support/random.h"
#include "tests/support/sim_stream.h"
#include "tests/support/tls_pair.h"
#include "transport/tcp/sealed_stream.h"
#include "transport/tcp/slice_header.h"
#include "transport/tcp/socket_stream.h"
#include "transport/tcp/stream_link.h"

namespace rondo::testing {
namespace {

using Streams = std::vector<std::unique_ptr<ByteStream>>;

enum class Seal { kNo, kYes };

MakeLink simulated(int connections, Seal seal = Seal::kNo) {
  return [connections, seal](const LinkShape& shape, uint64_t seed) {
    auto network = std::make_shared<SimNetwork>(seed);
    Random random(seed);
    SimShape wire;
    wire.capacity_bytes = 64 + random.below(8192);
    wire.delay_ticks = static_cast<uint32_t>(random.below(20));
    Streams here, there;
    for (int i = 0; i < connections; ++i) {
      auto connection = network->connect(wire);
      if (seal == Seal::kYes) {
        auto [dialer, acceptor] = open_sessions(wire.capacity_bytes);
        connection.side[0] = make_sealed_stream(std::move(connection.side[0]), std::move(dialer), "second peer");
        connection.side[1] = make_sealed_stream(std::move(connection.side[1]), std::move(acceptor), "first peer");
      }
      here.push_back(std::move(connection.side[0]));
      there.push_back(std::move(connection.side[1]));
    }
    LinkEnds ends;
    ends.side[0] = make_stream_link(std::move(here), shape, "second peer");
    ends.side[1] = make_stream_link(std::move(there), shape, "first peer");
    ends.advance = [network] { network->advance(); };
    return ends;
  };
}

std::pair<std::unique_ptr<ByteStream>, std::unique_ptr<ByteStream>> socket_pair() {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  return {std::make_unique<SocketStream>(Descriptor(ends[0]), "second peer"),
          std::make_unique<SocketStream>(Descriptor(ends[1]), "first peer")};
}

MakeLink over_sockets(int connections) {
  return [connections](const LinkShape& shape, uint64_t) {
    Streams here, there;
    for (int i = 0; i < connections; ++i) {
      auto [first, second] = socket_pair();
      here.push_back(std::move(first));
      there.push_back(std::move(second));
    }
    LinkEnds ends;
    ends.side[0] = make_stream_link(std::move(here), shape, "second peer");
    ends.side[1] = make_stream_link(std::move(there), shape, "first peer");
    return ends;
  };
}

std::string bytes_of(const SliceHeader& header, size_t payload) {
  std::string bytes(sizeof header + payload, 'x');
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

// A receiving link whose other end says what the test wants.
struct Raw {
  std::unique_ptr<ByteStream> peer;
  std::unique_ptr<Link> link;
  std::vector<std::byte> landing = std::vector<std::byte>(1000, std::byte{0xee});

  explicit Raw(const LinkShape& shape) {
    auto [first, second] = socket_pair();
    peer = std::move(first);
    Streams streams;
    streams.push_back(std::move(second));
    link = make_stream_link(std::move(streams), shape, "first peer");
  }
  void write(const std::string& bytes) {
    const iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    if (!bytes.empty()) REQUIRE(peer->write(&part, 1) == static_cast<long>(bytes.size()));
  }
  bool untouched() const { return std::count(landing.begin(), landing.end(), std::byte{0xee}) == 1000; }
};

}  // namespace

TEST_CASE("a stream link of one connection, simulated") {
  const auto [first, seeds] = seed_range(70);
  check_link_contract(simulated(1), first, seeds);
}

TEST_CASE("a stream link of three connections, simulated") {
  const auto [first, seeds] = seed_range(70);
  check_link_contract(simulated(3), first, seeds);
}

TEST_CASE("a stream link over sealed streams, simulated") {
  const auto [first, seeds] = seed_range(15);
  check_link_contract(simulated(1, Seal::kYes), first, seeds);
  check_link_contract(simulated(3, Seal::kYes), first, seeds);
}

TEST_CASE("stream links over sockets") {
  const auto [first, seeds] = seed_range(25);
  check_link_contract(over_sockets(1), first, seeds);
  check_link_contract(over_sockets(3), first, seeds);
}

TEST_CASE("both ends by threads of their own") {
  const auto [first, seeds] = seed_range(15);
  check_link_between_threads(over_sockets(1), first, seeds);
  check_link_between_threads(over_sockets(3), first, seeds);
}

TEST_CASE("a header that is wrong in any field is refused by name, and nothing lands") {
  const SliceTag expected{5, 6, 1000};
  struct Wrong {
    const char* what;
    SliceHeader header;
    ErrorCode code;
  };
  const SliceHeader right{1000, 0, 0, 0, 0, 5, 6};
  const auto with = [&](auto change) {
    SliceHeader header = right;
    change(header);
    return header;
  };
  const std::vector<Wrong> wrongs{
      {"shorter", with([](auto& h) { h.bytes = 999; }), ErrorCode::kMismatch},
      {"longer", with([](auto& h) { h.bytes = 1001; }), ErrorCode::kMismatch},
      {"longer than a slice", with([](auto& h) { h.bytes = 2001; }), ErrorCode::kProtocol},
      {"2^31", with([](auto& h) { h.bytes = 1u << 31; }), ErrorCode::kProtocol},
      {"2^32-1", with([](auto& h) { h.bytes = UINT32_MAX; }), ErrorCode::kProtocol},
      {"flags", with([](auto& h) { h.flags = 1; }), ErrorCode::kProtocol},
      {"check", with([](auto& h) { h.check = 0x8000; }), ErrorCode::kProtocol},
      {"checksum", with([](auto& h) { h.checksum = 1; }), ErrorCode::kProtocol},
      {"the index of the next", with([](auto& h) { h.index = 1; }), ErrorCode::kProtocol},
      {"an index beyond all landings", with([](auto& h) { h.index = 1000; }), ErrorCode::kProtocol},
      {"an index before the first", with([](auto& h) { h.index = UINT32_MAX; }), ErrorCode::kProtocol},
      {"sequence", with([](auto& h) { h.sequence = 4; }), ErrorCode::kMismatch},
      {"fingerprint", with([](auto& h) { h.fingerprint = ~uint64_t{6}; }), ErrorCode::kMismatch},
  };
  for (const Wrong& wrong : wrongs) {
    const std::string what = wrong.what;
    CAPTURE(what);
    Raw raw({4, 2000});
    raw.link->post(expected, raw.landing.data());
    raw.write(bytes_of(wrong.header, 1000) + bytes_of(right, 1000));
    for (int i = 0; i < 10; ++i) raw.link->pump();
    REQUIRE(raw.link->error() != nullptr);
    CHECK(raw.link->error()->code == wrong.code);
    CHECK(raw.link->error()->message.find("first peer sent slice ") == 0);
    CHECK(raw.link->arrived() == nullptr);
    CHECK(raw.untouched());
  }
}

TEST_CASE("stream links with checksums, simulated and over sockets") {
  const auto checked = [](MakeLink make) {
    return [make](LinkShape shape, uint64_t seed) {
      shape.checked = true;
      return make(shape, seed);
    };
  };
  const auto [first, seeds] = seed_range(30);
  check_link_contract(checked(simulated(1)), first, seeds);
  check_link_contract(checked(simulated(3)), first, seeds);
  check_link_contract(checked(over_sockets(1)), first, seeds);
}

// Proves: no flipped bit of header or payload arrives, wherever the payload lands, and all of them are called damage.
TEST_CASE("fault 20: every bit that is flipped above TCP is CORRUPT, and the slice never arrives") {
  constexpr uint32_t kPayload = 100;
  const SliceTag tag{5, 6, kPayload};
  std::string payload(kPayload, 'x');
  SliceHeader header{kPayload, 0, 0, 0, 0, 5, 6};
  seal_slice(header, reinterpret_cast<const std::byte*>(payload.data()));
  std::string sound(reinterpret_cast<const char*>(&header), sizeof header);
  sound += payload;
  for (const bool slot : {false, true}) {
    for (size_t bit = 0; bit <= 8 * sound.size(); ++bit) {
      CAPTURE(bit);
      std::string bytes = sound;
      if (bit < 8 * sound.size()) bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
      LinkShape shape{4, 2000};
      shape.checked = true;
      Raw raw(shape);
      raw.link->post(tag, slot ? nullptr : raw.landing.data());
      raw.write(bytes);
      for (int i = 0; i < 3; ++i) raw.link->pump();
      if (bit == 8 * sound.size()) {  // none
        REQUIRE(raw.link->arrived() != nullptr);
        continue;
      }
      REQUIRE(raw.link->arrived() == nullptr);
      REQUIRE(raw.link->error() != nullptr);
      CHECK(raw.link->error()->code == ErrorCode::kCorrupt);
      CHECK(raw.link->error()->message.find("first peer sent slice ") == 0);
      CHECK(raw.link->error()->message.find("arrived damaged") != std::string::npos);
    }
  }
}

TEST_CASE("a connection that the peer has closed is no error while another may bring the rest, unless it was cut") {
  for (const size_t cut : {0, 1, 40}) {  // bytes of a slice that came before the end
    CAPTURE(cut);
    auto [closed, closing] = socket_pair();
    auto [open, slow] = socket_pair();
    Streams streams;
    streams.push_back(std::move(closed));
    streams.push_back(std::move(open));
    const auto link = make_stream_link(std::move(streams), {4, 2000}, "first peer");
    for (int i = 0; i < 2; ++i) link->post({5, 6, 100}, nullptr);
    const auto say = [](ByteStream& stream, const std::string& bytes) {
      const iovec part{const_cast<char*>(bytes.data()), bytes.size()};
      if (!bytes.empty()) REQUIRE(stream.write(&part, 1) == static_cast<long>(bytes.size()));
    };
    say(*closing, bytes_of({100, 0, 0, 1, 0, 5, 6}, 100).substr(0, cut));
    closing.reset();
    for (int i = 0; i < 3; ++i) link->pump();
    CHECK((link->error() != nullptr) == (cut > 0));
    if (cut > 0) continue;
    say(*slow, bytes_of({100, 0, 0, 0, 0, 5, 6}, 100));
    for (int i = 0; i < 3; ++i) link->pump();
    CHECK(link->arrived() != nullptr);
    CHECK(link->error() == nullptr);
    slow.reset();
    for (int i = 0; i < 3; ++i) link->pump();
    CHECK(link->error() != nullptr);
  }
}

TEST_CASE(
    "fault 28: a stream cut at every byte: whole slices arrive, the one that is cut does not, and the error says so") {
  const std::string slices = bytes_of({100, 0, 0, 0, 0, 5, 6}, 100) + bytes_of({0, 0, 0, 1, 0, 5, 6}, 0) +
                             bytes_of({100, 0, 0, 2, 0, 5, 6}, 100);
  for (size_t cut = 0; cut <= slices.size(); ++cut) {
    CAPTURE(cut);
    Raw raw({4, 2000});
    for (const uint32_t bytes : {100u, 0u, 100u, 100u}) raw.link->post({5, 6, bytes}, nullptr);
    for (size_t at = 0; at < cut; ++at) {  // byte by byte: a header may come in pieces
      raw.write(slices.substr(at, 1));
      raw.link->pump();
    }
    CHECK(raw.link->error() == nullptr);
    raw.peer.reset();
    raw.link->pump();
    REQUIRE(raw.link->error() != nullptr);
    CHECK(raw.link->error()->code == ErrorCode::kPeerLost);
    CHECK(raw.link->error()->message.find("first peer") != std::string::npos);
    size_t arrived = 0;
    for (; raw.link->arrived() != nullptr; ++arrived) raw.link->release();
    CHECK(arrived == size_t{cut >= 132} + size_t{cut >= 164} + size_t{cut >= 296});
  }
}

}  // namespace rondo::testing
