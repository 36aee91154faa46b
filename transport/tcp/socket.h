#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ring/base/descriptor.h"
#include "rondo/store.h"
#include "transport/tcp/socket_options.h"

namespace rondo {

// A socket address of any family, by value.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  // Numeric, without the port; IPv6 link-local with its interface ("fe80::1%eth0"). The path for unix sockets.
  std::string host() const;
  uint16_t port() const;
  void set_port(uint16_t port);
  bool is_loopback() const;    // 127.0.0.0/8, ::1, and unix sockets
  bool is_link_local() const;  // 169.254.0.0/16, fe80::/10
  // The wildcard of its family: all addresses of this machine.
  bool is_any() const;
  // "tcp://10.0.0.1:29500", "tcp://[::1]:29500", "unix:///path".
  std::string text() const;
};

// All addresses of a host name or number; numbers do not block. Throws Exception(kNetwork) with the resolver's reason,
// or at the deadline, whatever the time limits of the system's resolver are; kInterrupted.
std::vector<SocketAddress> resolve(const std::string& host, uint16_t port,
                                   Store::Deadline deadline = Store::Deadline::max());
// It is an address in figures, and no name.
bool is_number(const std::string& host);
// The address in figures, without blocking. Throws Exception(kNetwork) for a name.
SocketAddress numeric_address(const std::string& host, uint16_t port);
// Throws Exception(kInvalid) if the path does not fit a socket address (107 bytes).
SocketAddress unix_address(const std::string& path);

// Waits until the descriptor is ready for `events`; false at the deadline. Throws Exception(kInterrupted) where the
// program ends the wait.
bool wait_ready(int fd, short events, Store::Deadline deadline);

// The address that a socket is bound to, and that of the other end of its connection; of no family if there is none.
SocketAddress bound_address(int socket);
SocketAddress peer_address(int socket);
// Where each end of a connection is, as SocketAddress::host(), for messages; "a local process" of a unix socket, "an
// unknown address" once the connection is gone.
std::string bound_host(int socket);
std::string peer_host(int socket);

// Who is at the other end of a unix socket, by the kernel's account, as of when it connected or listened. "" if it is a
// process of this user (or root's) with the pid that is expected (0: any), else why it is refused.
std::string check_peer(int socket, pid_t expected);
pid_t peer_pid(int socket);

// Non-blocking and close-on-exec, not connected; invalid at failure, errno then says why.
Descriptor stream_socket(int family);
// Connects one; invalid at failure or deadline, errno then says why.
Descriptor connect_socket(const SocketAddress& address, Store::Deadline deadline);

// A non-blocking, close-on-exec listening socket (SO_REUSEADDR; IPv6 wildcard is dual-stack); invalid at failure, errno
// then says why. *bound: the address that it got.
Descriptor listen_socket(const SocketAddress& address, SocketAddress* bound, const SocketTuning& tuning = {});

}  // namespace rondo
