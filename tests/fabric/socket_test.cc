#include "transport/tcp/socket_stream.h"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "tests/support/tcp_pair.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/socket_options.h"

namespace rondo {
namespace {

using testing::tcp_pair;

iovec part(std::string& bytes) { return {bytes.data(), bytes.size()}; }

TEST_CASE("bytes go through in order, gathered and scattered, and nothing to move is 0") {
  auto [one, other] = tcp_pair();
  SocketStream writer(std::move(one), "rank 1");
  SocketStream reader(std::move(other), "rank 0");
  std::string into(6, '\0');
  const iovec wanted = part(into);
  CHECK(reader.read(&wanted, 1) == 0);
  std::string first = "ab", none, second = "cdef";
  const iovec parts[] = {part(first), part(none), part(second)};
  CHECK(writer.write(parts, 3) == 6);
  std::string head(4, '\0'), tail(10, '\0');
  const iovec places[] = {part(head), part(tail)};
  CHECK(reader.read(places, 2) == 6);
  CHECK(head == "abcd");
  CHECK(tail.substr(0, 2) == "ef");
  const iovec empty = part(none);
  CHECK(reader.read(&empty, 1) == 0);  // and not the end
}

TEST_CASE("where the ends of a connection are, and words where the kernel does not say") {
  const auto [one, other] = tcp_pair();
  CHECK(bound_host(one.get()) == "127.0.0.1");
  CHECK(peer_host(one.get()) == "127.0.0.1");
  CHECK(bound_host(-1) == "an unknown address");
  CHECK(peer_host(-1) == "an unknown address");
}

TEST_CASE("a full socket takes part of a write, then nothing") {
  auto [one, other] = tcp_pair();
  SocketStream writer(std::move(one), "rank 1");
  std::string big(64u << 20, 'x');
  const iovec parts = part(big);
  CHECK(writer.write(&parts, 1) < static_cast<long>(big.size()));
  while (writer.write(&parts, 1) > 0) {
  }
  CHECK(writer.write(&parts, 1) == 0);
  CHECK(writer.error().ok());
}

TEST_CASE("the peer's end is an error with its name, without SIGPIPE, and stays") {
  auto [one, other] = tcp_pair();
  SocketStream stream(std::move(one), "rank 1 (host b, pid 17)");
  other = Descriptor();
  std::string bytes = "x";
  const iovec parts = part(bytes);
  CHECK(stream.read(&parts, 1) == -1);
  CHECK(stream.error().code == ErrorCode::kPeerLost);
  CHECK(stream.error().message == "rank 1 (host b, pid 17) closed the connection");
  CHECK(stream.write(&parts, 1) == -1);
}

TEST_CASE("data sockets are probed for as long as their ranks survive an outage, and have no limit for late readers") {
  const auto [one, other] = tcp_pair();
  const auto option = [socket = one.get()](int level, int name) {
    int value = 0;
    socklen_t size = sizeof value;
    REQUIRE(::getsockopt(socket, level, name, &value, &size) == 0);
    return value;
  };
  tune_data_socket(one.get(), tuning_of({}));
  CHECK(option(SOL_SOCKET, SO_KEEPALIVE) == 1);
  const int probes_seconds = option(IPPROTO_TCP, TCP_KEEPINTVL) * option(IPPROTO_TCP, TCP_KEEPCNT);
  CHECK(probes_seconds * 1'000 >= silence_ms({}));
  CHECK(option(IPPROTO_TCP, TCP_KEEPIDLE) <= 4);
  CHECK(option(IPPROTO_TCP, TCP_USER_TIMEOUT) == 0);
}

TEST_CASE("loopback sockets are not paced by BBR, and have no delay") {
  auto [one, other] = tcp_pair();
  CHECK(is_loopback(one.get()));
  tune_data_socket(one.get(), {});
  char name[16] = {};
  socklen_t size = sizeof name;
  REQUIRE(::getsockopt(one.get(), IPPROTO_TCP, TCP_CONGESTION, name, &size) == 0);
  CHECK(std::string(name).rfind("bbr", 0) != 0);
  int no_delay = 0;
  size = sizeof no_delay;
  REQUIRE(::getsockopt(one.get(), IPPROTO_TCP, TCP_NODELAY, &no_delay, &size) == 0);
  CHECK(no_delay == 1);
}

}  // namespace
}  // namespace rondo
