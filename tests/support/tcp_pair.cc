#include "tests/support/tcp_pair.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace rondo::testing {

std::pair<Descriptor, Descriptor> tcp_pair(int receive_bytes) {
  Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (receive_bytes > 0) {
    REQUIRE(::setsockopt(listener.get(), SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes) == 0);
  }
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

}  // namespace rondo::testing
