// Descriptors: events, epoll, sockets.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <string>

#include "tests/simulation/libc.h"

namespace rondo::testing::sim {
namespace {

template <typename Kind>
std::shared_ptr<Kind> find(int descriptor) {
  const auto file = kernel().find(descriptor);
  if (!file) return nullptr;
  auto found = std::dynamic_pointer_cast<Kind>(file);
  if (!found) errno = ENOTSOCK;
  return found;
}

Time in_milliseconds(int timeout) { return timeout < 0 ? kNever : machine().now() + timeout * kMillisecond; }

Endpoint4 endpoint_of(const sockaddr* address) {
  const auto& v4 = *reinterpret_cast<const sockaddr_in*>(address);
  return {ntohl(v4.sin_addr.s_addr), ntohs(v4.sin_port)};
}

int give_address(const Endpoint4& from, sockaddr* to, socklen_t* size) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(from.address);
  v4.sin_port = htons(from.port);
  std::memcpy(to, &v4, std::min<size_t>(*size, sizeof v4));
  *size = sizeof v4;
  return 0;
}

// One transfer, by a file's read or write, that waits where it may.
template <typename Transfer>
long transfer(int descriptor, short event, int flags, Transfer move) {
  machine().point();
  const auto file = kernel().find(descriptor);
  if (!file) return -1;
  while (true) {
    const long moved = move(*file);
    if (moved >= 0 || errno != EAGAIN || !file->blocking || (flags & MSG_DONTWAIT) != 0) return moved;
    machine().wait([&] { return (file->events() & (event | POLLERR | POLLHUP)) != 0; }, kNever);
  }
}

long read_parts(int descriptor, const iovec* parts, size_t count, int flags) {
  return transfer(descriptor, POLLIN, flags, [&](File& file) {
    long all = 0;
    for (size_t i = 0; i < count; ++i) {
      if (parts[i].iov_len == 0) continue;
      const long moved = file.read(static_cast<char*>(parts[i].iov_base), parts[i].iov_len);
      if (moved < 0) return all > 0 ? all : moved;
      all += moved;
      if (static_cast<size_t>(moved) < parts[i].iov_len) break;
    }
    return all;
  });
}

long write_parts(int descriptor, const iovec* parts, size_t count, int flags) {
  return transfer(descriptor, POLLOUT, flags, [&](File& file) {
    long all = 0;
    for (size_t i = 0; i < count; ++i) {
      if (parts[i].iov_len == 0) continue;
      const long moved = file.write(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
      if (moved < 0) return all > 0 ? all : moved;
      all += moved;
      if (static_cast<size_t>(moved) < parts[i].iov_len) break;
    }
    return all;
  });
}

}  // namespace

// --- descriptors

RONDO_REPLACES(int, close, int descriptor) {
  RONDO_REAL(close);
  return simulated(descriptor) ? kernel().close(descriptor) : real(descriptor);
}
RONDO_REPLACES(int, fcntl, int descriptor, int command, ...) {
  va_list list;
  va_start(list, command);
  const long argument = va_arg(list, long);
  va_end(list);
  RONDO_REAL(fcntl);
  if (!simulated(descriptor)) return real(descriptor, command, argument);
  const auto file = kernel().find(descriptor);
  if (!file) return -1;
  switch (command) {
    case F_GETFL:
      return O_RDWR | (file->blocking ? 0 : O_NONBLOCK);
    case F_SETFL:
      file->blocking = (argument & O_NONBLOCK) == 0;
      return 0;
    case F_GETFD:
      return FD_CLOEXEC;
    case F_SETFD:
      return 0;
    case F_DUPFD:
    case F_DUPFD_CLOEXEC:
      return kernel().duplicate(descriptor);
    default:
      return static_cast<int>(File::fail(EINVAL));
  }
}
RONDO_REPLACES(int, ioctl, int descriptor, unsigned long request, ...) {
  va_list list;
  va_start(list, request);
  void* const argument = va_arg(list, void*);
  va_end(list);
  RONDO_REAL(ioctl);
  if (!simulated(descriptor)) return real(descriptor, request, argument);
  const auto file = kernel().find(descriptor);
  if (!file) return -1;
  if (request == FIONBIO) file->blocking = *static_cast<int*>(argument) == 0;
  return 0;
}
RONDO_REPLACES(int, eventfd, unsigned initial, int flags) {
  RONDO_REAL(eventfd);
  if (!simulated()) return real(initial, flags);
  auto made = std::make_shared<Event>(*Machine::process());
  made->count = initial;
  made->blocking = (flags & O_NONBLOCK) == 0;
  return kernel().add(std::move(made));
}
RONDO_REPLACES(int, epoll_create1, int flags) {
  RONDO_REAL(epoll_create1);
  if (!simulated()) return real(flags);
  return kernel().add(std::make_shared<Epoll>(kernel(), *Machine::process()));
}
RONDO_REPLACES(int, epoll_create, int size) {
  RONDO_REAL(epoll_create);
  return simulated() ? epoll_create1_here(0) : real(size);
}
RONDO_REPLACES(int, epoll_ctl, int epoll, int operation, int descriptor, epoll_event* event) {
  RONDO_REAL(epoll_ctl);
  if (!simulated()) return real(epoll, operation, descriptor, event);
  const auto found = find<Epoll>(epoll);
  return found ? found->control(operation, descriptor, event) : -1;
}
RONDO_REPLACES(int, epoll_wait, int epoll, epoll_event* events, int most, int timeout) {
  RONDO_REAL(epoll_wait);
  if (!simulated()) return real(epoll, events, most, timeout);
  const auto found = find<Epoll>(epoll);
  return found ? wait_epoll(*found, events, most, in_milliseconds(timeout)) : -1;
}
RONDO_REPLACES(int, poll, pollfd* entries, nfds_t count, int timeout) {
  RONDO_REAL(poll);
  if (!simulated()) return real(entries, count, timeout);
  return poll_files(entries, count, in_milliseconds(timeout));
}
RONDO_REPLACES(int, ppoll, pollfd* entries, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  RONDO_REAL(ppoll);
  if (!simulated()) return real(entries, count, timeout, mask);
  return poll_files(entries, count, timeout == nullptr ? kNever : machine().now() + nanoseconds(*timeout));
}
RONDO_REPLACES(ssize_t, read, int descriptor, void* target, size_t size) {
  RONDO_REAL(read);
  if (!simulated(descriptor)) return real(descriptor, target, size);
  const iovec part{target, size};
  return read_parts(descriptor, &part, 1, 0);
}
RONDO_REPLACES(ssize_t, write, int descriptor, const void* source, size_t size) {
  RONDO_REAL(write);
  if (descriptor == STDERR_FILENO && simulated()) {  // what ranks log, with the simulated time
    const std::string line = std::to_string(machine().now() / kMicrosecond % (1'000'000'000)) + " us: ";
    static_cast<void>(real(descriptor, line.data(), line.size()));
  }
  if (!simulated(descriptor)) return real(descriptor, source, size);
  const iovec part{const_cast<void*>(source), size};
  return write_parts(descriptor, &part, 1, 0);
}
RONDO_REPLACES(ssize_t, readv, int descriptor, const iovec* parts, int count) {
  RONDO_REAL(readv);
  if (!simulated(descriptor)) return real(descriptor, parts, count);
  return read_parts(descriptor, parts, static_cast<size_t>(count), 0);
}
RONDO_REPLACES(ssize_t, writev, int descriptor, const iovec* parts, int count) {
  RONDO_REAL(writev);
  if (!simulated(descriptor)) return real(descriptor, parts, count);
  return write_parts(descriptor, parts, static_cast<size_t>(count), 0);
}

// --- sockets

RONDO_REPLACES(int, socket, int family, int type, int protocol) {
  RONDO_REAL(socket);
  if (!simulated()) return real(family, type, protocol);
  if (family != AF_INET) return static_cast<int>(File::fail(EAFNOSUPPORT));
  if ((type & 15) == SOCK_DGRAM) return kernel().add(std::make_shared<DatagramSocket>(*Machine::process()));
  auto made = kernel().make_socket(*Machine::process());
  made->blocking = (type & SOCK_NONBLOCK) == 0;
  return kernel().add(std::move(made));
}
RONDO_REPLACES(int, socketpair, int family, int type, int protocol, int* ends) {
  RONDO_REAL(socketpair);
  if (!simulated()) return real(family, type, protocol, ends);
  const auto one = std::make_shared<PairEnd>(*Machine::process()),
             other = std::make_shared<PairEnd>(*Machine::process());
  one->other = other;
  other->other = one;
  one->blocking = other->blocking = (type & SOCK_NONBLOCK) == 0;
  ends[0] = kernel().add(one);
  ends[1] = kernel().add(other);
  return 0;
}
RONDO_REPLACES(int, bind, int descriptor, const sockaddr* address, socklen_t size) {
  RONDO_REAL(bind);
  if (!simulated(descriptor)) return real(descriptor, address, size);
  const auto file = kernel().find(descriptor);
  if (auto* const datagrams = dynamic_cast<DatagramSocket*>(file.get())) {
    const uint32_t wanted = endpoint_of(address).address;
    const bool own = (wanted >> 24) == 127 || wanted == 0 || wanted == Kernel::address_of(Machine::process()->host);
    datagrams->own = {wanted, 9};
    return own ? 0 : static_cast<int>(File::fail(EADDRNOTAVAIL));
  }
  const auto found = find<Socket>(descriptor);
  return found ? found->bind(endpoint_of(address)) : -1;
}
RONDO_REPLACES(int, listen, int descriptor, int backlog) {
  RONDO_REAL(listen);
  if (!simulated(descriptor)) return real(descriptor, backlog);
  const auto found = find<Socket>(descriptor);
  return found ? found->listen() : -1;
}
RONDO_REPLACES(int, accept4, int descriptor, sockaddr* address, socklen_t* size, int flags) {
  RONDO_REAL(accept4);
  if (!simulated(descriptor)) return real(descriptor, address, size, flags);
  const auto found = find<Socket>(descriptor);
  const auto made = found ? found->accept() : nullptr;
  if (!made) return -1;
  made->blocking = (flags & SOCK_NONBLOCK) == 0;
  if (address != nullptr) give_address(made->peer(), address, size);
  return kernel().add(made);
}
RONDO_REPLACES(int, accept, int descriptor, sockaddr* address, socklen_t* size) {
  RONDO_REAL(accept);
  return simulated(descriptor) ? accept4_here(descriptor, address, size, 0) : real(descriptor, address, size);
}
RONDO_REPLACES(int, connect, int descriptor, const sockaddr* address, socklen_t size) {
  RONDO_REAL(connect);
  if (!simulated(descriptor)) return real(descriptor, address, size);
  machine().point();
  const auto file = kernel().find(descriptor);
  if (auto* const datagrams = dynamic_cast<DatagramSocket*>(file.get())) {
    const Endpoint4 to = endpoint_of(address);
    datagrams->own = {(to.address >> 24) == 127 ? to.address : Kernel::address_of(Machine::process()->host), 9};
    return 0;
  }
  const auto found = find<Socket>(descriptor);
  return found ? found->connect(endpoint_of(address)) : -1;
}
RONDO_REPLACES(int, getsockname, int descriptor, sockaddr* address, socklen_t* size) {
  RONDO_REAL(getsockname);
  if (!simulated(descriptor)) return real(descriptor, address, size);
  const auto file = kernel().find(descriptor);
  if (auto* const datagrams = dynamic_cast<DatagramSocket*>(file.get()))
    return give_address(datagrams->own, address, size);
  const auto found = find<Socket>(descriptor);
  return found ? give_address(found->own(), address, size) : -1;
}
RONDO_REPLACES(int, getpeername, int descriptor, sockaddr* address, socklen_t* size) {
  RONDO_REAL(getpeername);
  if (!simulated(descriptor)) return real(descriptor, address, size);
  const auto found = find<Socket>(descriptor);
  if (!found) return -1;
  return found->connected() ? give_address(found->peer(), address, size) : static_cast<int>(File::fail(ENOTCONN));
}
RONDO_REPLACES(int, shutdown, int descriptor, int how) {
  RONDO_REAL(shutdown);
  if (!simulated(descriptor)) return real(descriptor, how);
  const auto found = find<Socket>(descriptor);
  return found ? found->shut_down_writing() : -1;
}
RONDO_REPLACES(int, setsockopt, int descriptor, int level, int option, const void* value, socklen_t size) {
  RONDO_REAL(setsockopt);
  if (!simulated(descriptor)) return real(descriptor, level, option, value, size);
  const auto found = find<Socket>(descriptor);
  if (!found) return -1;
  if (size == sizeof(int)) found->set_option(level, option, *static_cast<const int*>(value));
  return 0;
}
RONDO_REPLACES(int, getsockopt, int descriptor, int level, int option, void* value, socklen_t* size) {
  RONDO_REAL(getsockopt);
  if (!simulated(descriptor)) return real(descriptor, level, option, value, size);
  const auto found = find<Socket>(descriptor);
  if (!found) return -1;
  std::memset(value, 0, *size);
  if (level == SOL_SOCKET && option == SO_ERROR) {
    *static_cast<int*>(value) = found->take_error();
  } else if (level == SOL_SOCKET && option == SO_DOMAIN) {
    *static_cast<int*>(value) = AF_INET;
  } else if (level == IPPROTO_TCP && option == TCP_INFO) {
    tcp_info facts{};
    facts.tcpi_bytes_acked = found->acknowledged();
    facts.tcpi_unacked = found->unacknowledged() > 0;
    facts.tcpi_retransmits = found->retransmits();
    std::memcpy(value, &facts, std::min<size_t>(*size, sizeof facts));
  }
  return 0;
}
RONDO_REPLACES(ssize_t, recv, int descriptor, void* target, size_t size, int flags) {
  RONDO_REAL(recv);
  if (!simulated(descriptor)) return real(descriptor, target, size, flags);
  const iovec part{target, size};
  return read_parts(descriptor, &part, 1, flags);
}
RONDO_REPLACES(ssize_t, send, int descriptor, const void* source, size_t size, int flags) {
  RONDO_REAL(send);
  if (!simulated(descriptor)) return real(descriptor, source, size, flags);
  const iovec part{const_cast<void*>(source), size};
  return write_parts(descriptor, &part, 1, flags);
}
RONDO_REPLACES(ssize_t, recvmsg, int descriptor, msghdr* message, int flags) {
  RONDO_REAL(recvmsg);
  if (!simulated(descriptor)) return real(descriptor, message, flags);
  message->msg_controllen = 0;
  return read_parts(descriptor, message->msg_iov, message->msg_iovlen, flags);
}
RONDO_REPLACES(ssize_t, sendmsg, int descriptor, const msghdr* message, int flags) {
  RONDO_REAL(sendmsg);
  if (!simulated(descriptor)) return real(descriptor, message, flags);
  return write_parts(descriptor, message->msg_iov, message->msg_iovlen, flags);
}

}  // namespace rondo::testing::sim
