#include "transport/island/island_socket.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "ring/base/check.h"
#include "rondo/error.h"

namespace rondo {
namespace {

constexpr int kSocketType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;

// An address in the abstract namespace. Its length says where the name ends; there is no closing zero byte.
struct Address {
  explicit Address(const std::string& name) {
    unix_address.sun_family = AF_UNIX;  // sun_path[0] stays 0: abstract
    RONDO_CHECK(name.size() < sizeof unix_address.sun_path, "the name of a socket fits");
    std::memcpy(unix_address.sun_path + 1, name.data(), name.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&unix_address); }
  sockaddr_un unix_address{};
  socklen_t size = 0;
};

// The name in the kernel says what it is for in /proc/net/unix.
std::string full_name(const std::string& name) { return "rondo-" + name; }

// The descriptors that came with a message; the kernel puts them in one part.
std::span<const int> numbers_in(msghdr& message, std::array<int, kMaxDescriptors>& numbers) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = std::min((part->cmsg_len - CMSG_LEN(0)) / sizeof(int), kMaxDescriptors);
    std::memcpy(numbers.data(), CMSG_DATA(part), count * sizeof(int));
    return {numbers.data(), count};
  }
  return {};
}

}  // namespace

// Random: another process cannot take the name first. The abstract namespace has no permissions, so check_peer() tells
// who connected.
std::string random_socket_name() {
  uint64_t random[2];
  if (::getrandom(random, sizeof random, 0) != sizeof random) {
    throw Exception(ErrorCode::kSystem, "the system gave no random bytes");
  }
  return fmt::format("{:016x}{:016x}", random[0], random[1]);
}

Descriptor listen_abstract(const std::string& name, int backlog) {
  const Address address(full_name(name));
  Descriptor socket([&] { return ::socket(AF_UNIX, kSocketType, 0); });
  if (!socket.valid() || ::bind(socket.get(), address.get(), address.size) != 0 ||
      ::listen(socket.get(), backlog) != 0) {
    throw Exception(ErrorCode::kSystem, fmt::format("listening on a local socket: {}", std::strerror(errno)));
  }
  return socket;
}

// Does not wait for the other end: the kernel queues the connection, or refuses it (EAGAIN).
Descriptor connect_abstract(const std::string& name, int& error) {
  const Address address(full_name(name));
  Descriptor socket([&] { return ::socket(AF_UNIX, kSocketType, 0); });
  while (socket.valid() && ::connect(socket.get(), address.get(), address.size) != 0) {
    if (errno == EINTR) continue;
    error = errno;
    return Descriptor();
  }
  if (!socket.valid()) error = errno;
  return socket;
}

Descriptor accept_abstract(int listener) {
  return Descriptor([&] { return ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
}

// A message goes whole or not at all. ETOOMANYREFS: too many descriptors of this user are in flight between processes.
Sent send_message(int socket, const void* message, size_t bytes, std::span<const int> descriptors, std::string& why) {
  RONDO_CHECK(descriptors.size() <= kMaxDescriptors, "a message carries few descriptors");
  iovec part{const_cast<void*>(message), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  while (true) {
    if (::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Sent::kYes;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ETOOMANYREFS) return Sent::kLater;
    why = std::strerror(errno);
    return Sent::kOver;
  }
}

// Descriptors that come with a message that is refused are closed with `descriptors`: a peer cannot fill this process's
// table with them.
Received receive_message(int socket, void* message, size_t bytes, std::vector<Descriptor>& descriptors,
                         std::string& why) {
  descriptors.clear();
  iovec part{message, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t moved = -1;
  int error = 0;
  std::array<int, kMaxDescriptors> numbers;
  descriptors = own_all(kMaxDescriptors, [&]() -> std::span<const int> {
    do {
      moved = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (moved < 0 && errno == EINTR);
    error = errno;
    return moved < 0 ? std::span<const int>() : numbers_in(header, numbers);
  });
  if (moved < 0 && (error == EAGAIN || error == EWOULDBLOCK)) return Received::kNothing;
  if (moved < 0) {
    why = std::strerror(error);
    return Received::kOver;
  }
  if (moved == 0) {
    descriptors.clear();
    why = "the connection was closed";
    return Received::kOver;
  }
  if ((header.msg_flags & MSG_CTRUNC) != 0) {
    why = "a descriptor did not come through (is the limit on open files, ulimit -n, too low?)";
  } else if (static_cast<size_t>(moved) != bytes || (header.msg_flags & MSG_TRUNC) != 0) {
    why = "it sent a message of another length";
  } else {
    return Received::kYes;
  }
  descriptors.clear();
  return Received::kBroken;
}

}  // namespace rondo
