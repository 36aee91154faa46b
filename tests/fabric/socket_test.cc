#include "transport/tcp/socket_stream.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "ring/base/descriptor.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/socket_options.h"

namespace rondo {
namespace {

// Connected over loopback, non-blocking, without delay.
std::pair<Descriptor, Descriptor> tcp_pair() {
  const Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(::bind(listener.get(), generic, size) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  REQUIRE(::getsockname(listener.get(), generic, &size) == 0);
  Descriptor dialed(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(dialed.get(), generic, size) == 0);
  Descriptor accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  REQUIRE(accepted.valid());
  ::fcntl(dialed.get(), F_SETFL, O_NONBLOCK);
  const int on = 1;
  for (const Descriptor* end : {&dialed, &accepted}) {
    REQUIRE(::setsockopt(end->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
  }
  return {std::move(dialed), std::move(accepted)};
}

TEST_CASE("where the ends of a connection are, and words where the kernel does not say") {
  const auto [one, other] = tcp_pair();
  CHECK(bound_host(one.get()) == "127.0.0.1");
  CHECK(peer_host(one.get()) == "127.0.0.1");
  CHECK(bound_host(-1) == "an unknown address");
  CHECK(peer_host(-1) == "an unknown address");
}

// Beyond what stream_contract_test proves.
TEST_CASE("a read into nothing is not the end; once the peer's end was read, a write is an error, too") {
  auto [one, other] = tcp_pair();
  SocketStream stream(std::move(one), "rank 1");
  char byte = 'x';
  const iovec nothing{&byte, 0}, part{&byte, 1};
  CHECK(stream.read(&nothing, 1) == 0);
  other = Descriptor();
  CHECK(stream.read(&part, 1) == -1);
  CHECK(stream.write(&part, 1) == -1);
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
