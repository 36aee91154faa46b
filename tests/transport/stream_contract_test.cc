// Byte streams over sockets, and sealed ones, keep the contract that streams over shared memory keep
// (tests/support/stream_contract.h).
#include "tests/support/stream_contract.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <memory>

#include "tests/engine/arguments.h"
#include "tests/support/random.h"
#include "tests/support/sim_stream.h"
#include "tests/support/tls_pair.h"
#include "transport/tcp/sealed_stream.h"
#include "transport/tcp/socket_stream.h"

namespace rondo::testing {
namespace {

StreamEnds socket_pair(uint64_t) {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  StreamEnds made;
  made.side[0] = std::make_unique<SocketStream>(Descriptor(ends[0]), "second peer");
  made.side[1] = std::make_unique<SocketStream>(Descriptor(ends[1]), "first peer");
  return made;
}

StreamEnds sealed(uint64_t seed) {
  auto network = std::make_shared<SimNetwork>(seed);
  Random random(seed);
  SimShape wire;
  wire.capacity_bytes = 4096 + random.below(60'000);
  wire.delay_ticks = static_cast<uint32_t>(random.below(5));
  auto connection = network->connect(wire);
  auto [dialer, acceptor] = open_sessions(seed % 2 == 0 ? 20'000 : TlsSession::kKeyBytes);  // with changes of the key
  StreamEnds made;
  made.side[0] = make_sealed_stream(std::move(connection.side[0]), std::move(dialer), "second peer");
  made.side[1] = make_sealed_stream(std::move(connection.side[1]), std::move(acceptor), "first peer");
  made.first_name = "";  // the simulation's end has no name
  made.advance = [network] { network->advance(); };
  return made;
}

}  // namespace

TEST_CASE("a stream over a socket") {
  const auto [first, seeds] = seed_range(10);
  check_stream_contract(socket_pair, first, seeds);
  check_stream_between_threads(socket_pair, first, 2);
}

TEST_CASE("a sealed stream, simulated") {
  const auto [first, seeds] = seed_range(4);
  check_stream_contract(sealed, first, seeds);
}

}  // namespace rondo::testing
