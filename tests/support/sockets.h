#pragma once

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ring/base/descriptor.h"

namespace rondo::testing {

// Longer than any machine is busy.
inline constexpr std::chrono::milliseconds kSocketPatience{20'000};

// A port of 127.0.0.1 that was free a moment ago.
inline uint16_t free_port() {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.sin_port);
}

// The sockets of this process that listen.
inline std::vector<int> listening_sockets() {
  std::vector<int> sockets;
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    int listens = 0;
    socklen_t size = sizeof listens;
    if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0)
      sockets.push_back(descriptor);
  }
  return sockets;
}

// Sends as much as the socket takes.
inline void say(const Descriptor& socket, std::string_view bytes) {
  (void)!::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// False: there is nothing to read in time.
inline bool readable(const Descriptor& socket, std::chrono::milliseconds patience = kSocketPatience) {
  pollfd wish{socket.get(), POLLIN, 0};
  return ::poll(&wish, 1, static_cast<int>(patience.count())) == 1;
}

// Everything up to the end of the connection; nullopt: it has not ended in time.
inline std::optional<std::string> said_to_end(const Descriptor& socket,
                                              std::chrono::milliseconds patience = kSocketPatience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::string all;
  char buffer[4096];
  while (true) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left.count() <= 0 || !readable(socket, std::chrono::ceil<std::chrono::milliseconds>(left))) return std::nullopt;
    const ssize_t moved = ::recv(socket.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (moved > 0) all.append(buffer, static_cast<size_t>(moved));
    if (moved == 0 || (moved < 0 && errno != EAGAIN && errno != EINTR)) return all;
  }
}

inline std::string read_to_end(const Descriptor& socket) {
  const auto all = said_to_end(socket);
  REQUIRE(all);
  return *all;
}

inline bool closes(const Descriptor& socket, int64_t ms) {
  return said_to_end(socket, std::chrono::milliseconds(ms)).has_value();
}

inline std::string read_exactly(const Descriptor& socket, size_t size) {
  std::string bytes(size, '\0');
  for (size_t have = 0; have < size;) {
    REQUIRE(readable(socket));
    const ssize_t moved = ::recv(socket.get(), bytes.data() + have, size - have, 0);
    REQUIRE(moved > 0);
    have += static_cast<size_t>(moved);
  }
  return bytes;
}

}  // namespace rondo::testing
