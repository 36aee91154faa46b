#include "transport/tcp/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <utility>

#include "ring/base/interrupt.h"
#include "ring/base/json_text.h"
#include "ring/base/own_thread.h"
#include "rondo/error.h"

namespace rondo {
namespace {

// The storage as an address of its family, which the caller has compared.
const sockaddr_in& v4(const SocketAddress& a) { return reinterpret_cast<const sockaddr_in&>(a.storage); }
const sockaddr_in6& v6(const SocketAddress& a) { return reinterpret_cast<const sockaddr_in6&>(a.storage); }
const sockaddr_un& local(const SocketAddress& a) { return reinterpret_cast<const sockaddr_un&>(a.storage); }

// Closing may set errno, which the caller has promised to leave.
void close_keeping_errno(Descriptor* socket) {
  const int reason = errno;
  socket->reset();
  errno = reason;
}

// A connection from a port to itself. TCP allows it when both ends happen to be the same ephemeral port, which a client
// that retries before its server is up meets sooner or later. It would also keep the server from its port.
bool connected_to_itself(int fd) {
  const SocketAddress own = bound_address(fd), peer = peer_address(fd);
  return own.port() != 0 && own.port() == peer.port() && own.host() == peer.host();
}

// By the kernel, at the time of connect() or listen(): no process can claim another's. pid -1: not known.
ucred credentials(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) peer.pid = -1;
  return peer;
}

struct FoundAddresses {
  std::vector<SocketAddress> addresses;
  int failure = 0;  // getaddrinfo()'s
  std::string why;
};

// All IPv4 and IPv6 addresses, in the resolver's order. AI_NUMERICHOST: figures only, which takes no resolver.
FoundAddresses look_up(const std::string& host, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  FoundAddresses found;
  found.failure = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (found.failure != 0) {
    found.why = found.failure == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(found.failure);
    return found;
  }
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
    SocketAddress address;
    std::memcpy(&address.storage, a->ai_addr, a->ai_addrlen);
    address.size = a->ai_addrlen;
    found.addresses.push_back(address);
  }
  return found;
}

// The resolver takes as long as it likes, so a thread of its own asks, and is left behind at the deadline.
FoundAddresses look_up_name(const std::string& host, Store::Deadline deadline) {
  const FoundAddresses late{{}, 0, "no name server has answered by the deadline"};
  if (std::chrono::steady_clock::now() >= deadline) return late;  // whether or not the thread would be fast enough
  // Shared with the thread. What it throws there is thrown here.
  const auto ask = std::make_shared<std::packaged_task<FoundAddresses()>>([host] { return look_up(host, 0); });
  std::future<FoundAddresses> found = ask->get_future();
  start_own_thread("rondo-resolve", [ask] { (*ask)(); }).detach();
  while (true) {
    const auto now = std::chrono::steady_clock::now();
    const auto until = std::min<Store::Deadline>(deadline, now + kBetweenInterruptQuestions);
    if (found.wait_until(until) == std::future_status::ready) return found.get();
    end_wait_if_interrupted();
    if (until == deadline) return late;
  }
}

std::string host_of(const SocketAddress& address) {
  if (address.family() == AF_UNSPEC) return "an unknown address";
  return address.family() == AF_UNIX ? "a local process" : address.host();
}

}  // namespace

// The storage is zeroed, so a unix path that fills sun_path still ends.
std::string SocketAddress::host() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (family() == AF_INET) return ::inet_ntop(AF_INET, &v4(*this).sin_addr, text, sizeof text);
  if (family() == AF_UNIX) return local(*this).sun_path;
  if (family() != AF_INET6) return "";
  ::inet_ntop(AF_INET6, &v6(*this).sin6_addr, text, sizeof text);
  std::string host = text;
  char name[IF_NAMESIZE];
  if (v6(*this).sin6_scope_id != 0 && ::if_indextoname(v6(*this).sin6_scope_id, name)) host += std::string("%") + name;
  return host;
}

uint16_t SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(v4(*this).sin_port);
  if (family() == AF_INET6) return ntohs(v6(*this).sin6_port);
  return 0;
}

void SocketAddress::set_port(uint16_t port) {
  if (family() == AF_INET) reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET) return (ntohl(v4(*this).sin_addr.s_addr) >> 24) == 127;
  if (family() == AF_INET6) {
    const in6_addr& a = v6(*this).sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&a) || (IN6_IS_ADDR_V4MAPPED(&a) && a.s6_addr[12] == 127);
  }
  return family() == AF_UNIX;
}

bool SocketAddress::is_link_local() const {
  if (family() == AF_INET) return (ntohl(v4(*this).sin_addr.s_addr) >> 16) == 0xa9fe;
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6(*this).sin6_addr);
}

bool SocketAddress::is_any() const {
  if (family() == AF_INET) return v4(*this).sin_addr.s_addr == htonl(INADDR_ANY);
  return family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6(*this).sin6_addr);
}

std::string SocketAddress::text() const {
  if (family() == AF_UNIX) return fmt::format("unix://{}", host());
  if (family() == AF_INET6) return fmt::format("tcp://[{}]:{}", host(), port());
  return fmt::format("tcp://{}:{}", host(), port());
}

// Figures first: they need no thread. EAI_NONAME then means that it is a name.
std::vector<SocketAddress> resolve(const std::string& host, uint16_t port, Store::Deadline deadline) {
  FoundAddresses found = look_up(host, AI_NUMERICHOST);
  if (found.failure == EAI_NONAME) found = look_up_name(host, deadline);
  if (!found.why.empty()) {
    throw Exception(ErrorCode::kNetwork, fmt::format("cannot resolve the host {}: {}", json_text(host), found.why));
  }
  for (SocketAddress& address : found.addresses) address.set_port(port);
  return std::move(found.addresses);
}

bool is_number(const std::string& host) { return look_up(host, AI_NUMERICHOST).failure == 0; }

SocketAddress numeric_address(const std::string& host, uint16_t port) {
  const FoundAddresses found = look_up(host, AI_NUMERICHOST);
  if (found.addresses.empty()) {
    throw Exception(ErrorCode::kNetwork, fmt::format("{} is no numeric address", json_text(host)));
  }
  SocketAddress address = found.addresses.front();
  address.set_port(port);
  return address;
}

// A relative path would depend on the process's folder, and an empty first byte would be an abstract name.
SocketAddress unix_address(const std::string& path) {
  SocketAddress address;
  auto& local_address = reinterpret_cast<sockaddr_un&>(address.storage);
  if (path.empty() || path[0] != '/' || path.size() >= sizeof local_address.sun_path) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("{} cannot be a unix socket: an absolute path of at most {} bytes is needed",
                                json_text(path), sizeof local_address.sun_path - 1));
  }
  local_address.sun_family = AF_UNIX;
  std::memcpy(local_address.sun_path, path.c_str(), path.size() + 1);
  address.size = sizeof(sockaddr_un);
  return address;
}

// Wakes now and then to ask whether the program wants to end the wait (Ctrl-C in Python).
bool wait_ready(int fd, short events, Store::Deadline deadline) {
  using namespace std::chrono;
  while (true) {
    end_wait_if_interrupted();
    const auto left = ceil<milliseconds>(deadline - steady_clock::now());
    pollfd entry{fd, events, 0};
    int n = ::poll(&entry, 1, static_cast<int>(std::clamp(left, 0ms, kBetweenInterruptQuestions).count()));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return true;  // the following call reports what is wrong
    if (n == 0 && left <= 0ms) return false;
  }
}

SocketAddress bound_address(int socket) {
  SocketAddress address;
  address.size = sizeof address.storage;
  return ::getsockname(socket, address.get(), &address.size) == 0 ? address : SocketAddress();
}

SocketAddress peer_address(int socket) {
  SocketAddress address;
  address.size = sizeof address.storage;
  return ::getpeername(socket, address.get(), &address.size) == 0 ? address : SocketAddress();
}

std::string bound_host(int socket) { return host_of(bound_address(socket)); }
std::string peer_host(int socket) { return host_of(peer_address(socket)); }

// Root may be a container's init or an administrator's program, and could read this process's memory anyway.
std::string check_peer(int socket, pid_t expected) {
  const ucred peer = credentials(socket);
  if (peer.pid <= 0) return "the kernel does not say who it is";
  if (peer.uid != ::geteuid() && peer.uid != 0) return fmt::format("it belongs to user {}", peer.uid);
  if (expected != 0 && peer.pid != expected) return fmt::format("it is process {}, not {}", peer.pid, expected);
  return "";
}

pid_t peer_pid(int socket) { return credentials(socket).pid; }

Descriptor stream_socket(int family) {
  return Descriptor([family] { return ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
}

// The socket stays non-blocking, so poll() bounds the time to connect; the kernel's own limit is minutes.
Descriptor connect_socket(const SocketAddress& address, Store::Deadline deadline) {
  Descriptor socket = stream_socket(address.family());
  if (!socket.valid()) return socket;
  int failure = ::connect(socket.get(), address.get(), address.size) == 0 ? 0 : errno;
  if (failure == EINPROGRESS || failure == EINTR) {
    if (!wait_ready(socket.get(), POLLOUT, deadline)) {
      errno = ETIMEDOUT;
      close_keeping_errno(&socket);
      return socket;
    }
    socklen_t size = sizeof failure;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failure, &size) != 0) failure = errno;
  }
  if (failure == 0 && connected_to_itself(socket.get())) failure = ECONNREFUSED;
  if (failure != 0) {
    errno = failure;
    close_keeping_errno(&socket);
    return socket;
  }
  int on = 1;
  if (address.family() != AF_UNIX) ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

// The backlog is the system's maximum: all ranks of a job may connect at once.
Descriptor listen_socket(const SocketAddress& address, SocketAddress* bound, const SocketTuning& tuning) {
  Descriptor socket = stream_socket(address.family());
  if (!socket.valid()) return socket;
  int on = 1, off = 0;
  // Without it, connections of an earlier run in TIME_WAIT would keep the port for a minute.
  if (address.family() != AF_UNIX) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.family() == AF_INET6) {
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, address.is_any() ? &off : &on, sizeof on);
  }
  set_buffers(socket.get(), tuning);
  bound->size = sizeof(sockaddr_storage);
  if (::bind(socket.get(), address.get(), address.size) != 0 || ::listen(socket.get(), SOMAXCONN) != 0 ||
      ::getsockname(socket.get(), bound->get(), &bound->size) != 0) {
    close_keeping_errno(&socket);
  }
  return socket;
}

}  // namespace rondo
