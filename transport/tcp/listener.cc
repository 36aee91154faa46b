#include "transport/tcp/listener.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "ring/base/figures.h"
#include "ring/base/file_text.h"
#include "ring/base/system_error.h"
#include "rondo/error.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

// How long, and how often, a taken port is tried again (listen_tcp() in listener.h says why).
constexpr auto kTakenRetry = std::chrono::seconds(5);
constexpr auto kTakenPause = std::chrono::milliseconds(20);
// How many left-over sockets one start looks at, so that a full directory does not delay it.
constexpr int kSweepLimit = 256;

SocketAddress any_address(int family, uint16_t port) {
  SocketAddress address;
  address.storage.ss_family = static_cast<sa_family_t>(family);
  address.size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  address.set_port(port);
  return address;  // INADDR_ANY and in6addr_any are all zeros
}

// Whether an address belongs to this machine.
bool bindable(SocketAddress address) {
  address.set_port(0);
  Descriptor probe([&] { return ::socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0); });
  return probe.valid() && ::bind(probe.get(), address.get(), address.size) == 0;
}

// The address to listen on: one that is this machine's, else all of its addresses.
SocketAddress choose(const std::vector<SocketAddress>& addresses, const std::string& host, uint16_t port) {
  for (const SocketAddress& address : addresses) {
    // A name that leads to a loopback address other than the usual ones (Debian's 127.0.1.1 for the own name) leads
    // other machines elsewhere, so that listening there would keep them out.
    bool own_name =
        address.is_loopback() && address.host() != "127.0.0.1" && address.host() != "::1" && address.host() != host;
    if (!own_name && bindable(address)) return address;
  }
  for (const SocketAddress& address : addresses) {
    if (address.family() == AF_INET) return any_address(AF_INET, port);
  }
  return any_address(AF_INET6, port);
}

[[noreturn]] void fail(std::string message) { throw Exception(ErrorCode::kBootstrap, std::move(message)); }

// Whether the directory is this user's and no other user can put anything there.
bool is_own(const std::string& directory) {
  struct stat info {};
  return ::stat(directory.c_str(), &info) == 0 && info.st_uid == ::geteuid() && (info.st_mode & 022) == 0;
}

// An exclusive lock on a directory while sockets are inspected and replaced.
class DirectoryLock {
 public:
  DirectoryLock(const std::string& directory, Store::Deadline deadline)
      : directory_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (!directory_.valid()) fail(fmt::format("cannot open the directory {}: {}", directory, std::strerror(errno)));
    while (::flock(directory_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) {
        fail(fmt::format("cannot lock the directory {}: {}", directory, std::strerror(errno)));
      }
      if (Clock::now() >= deadline) fail(fmt::format("another process kept the lock on {} for too long", directory));
      wait_ready(-1, 0, Clock::now() + std::chrono::milliseconds(1));
    }
  }

 private:
  Descriptor directory_;  // closing it ends the lock
};

enum class Occupant { kNone, kLeftOver, kAlive, kForeign };

// What is at the path of a socket. A refused connection means that nobody listens: its process crashed.
Occupant occupant(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return Occupant::kNone;
  if (!S_ISSOCK(info.st_mode) || info.st_uid != ::geteuid()) return Occupant::kForeign;
  Descriptor probe = connect_socket(unix_address(path), Clock::now() + std::chrono::seconds(1));
  return !probe.valid() && errno == ECONNREFUSED ? Occupant::kLeftOver : Occupant::kAlive;
}

// Removes what crashed runs left in the private directory. The caller holds its lock.
void sweep(const std::string& directory) {
  struct Close {
    void operator()(DIR* d) const { ::closedir(d); }
  };
  std::unique_ptr<DIR, Close> entries(::opendir(directory.c_str()));
  if (!entries) return;
  for (int i = 0; i < kSweepLimit; ++i) {
    const dirent* entry = ::readdir(entries.get());
    if (entry == nullptr) return;
    std::string path = directory + "/" + entry->d_name;
    if (path.size() < sizeof(sockaddr_storage) - 32 && occupant(path) == Occupant::kLeftOver) ::unlink(path.c_str());
  }
}

std::string parent_of(const std::string& path) {
  size_t slash = path.find_last_of('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

Exposure exposure_of(const Config& config, const Secret& secret) {
  return config.insecure || secret.spans_hosts() ? Exposure::kNetwork : Exposure::kLoopback;
}

void check_may_listen_beyond_loopback(const std::string& address, Exposure exposure) {
  if (exposure == Exposure::kNetwork) return;
  throw Exception(
      ErrorCode::kInvalid,
      fmt::format("this job would listen on {}, where other machines can connect: set RONDO_SECRET_FILE to "
                  "a file that only you can read, the same on every host, or RONDO_INSECURE=1 if the network "
                  "is trusted",
                  address));
}

// One port is a range of one; 0 is any.
PortRange data_port_range(const Config& config) {
  std::string_view text = config.data_ports;
  size_t dash = text.find('-');
  std::optional<uint16_t> first = parse_number<uint16_t>(text.substr(0, dash));
  std::optional<uint16_t> last = dash == std::string_view::npos ? first : parse_number<uint16_t>(text.substr(dash + 1));
  if (!first || !last || *last < *first || (*first == 0 && *last != 0)) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("RONDO_PORT_RANGE=\"{}\" is not allowed: it must be 0 (any), a port such as 5000, or a "
                                "range such as 5000-5099",
                                config.data_ports));
  }
  return {*first, *last};
}

// Tries the ports in order while they are taken; any other failure would be that of the next port, too.
Listener listen_in_range(const std::string& address, PortRange ports, const SocketTuning& tuning) {
  SocketAddress wanted = resolve(address, 0).front();
  Listener listener;
  int number = EADDRINUSE;
  for (uint32_t port = ports.first; port <= ports.last && number == EADDRINUSE; ++port) {
    wanted.set_port(static_cast<uint16_t>(port));
    listener.socket = listen_socket(wanted, &listener.address, tuning);
    if (listener.socket.valid()) return listener;
    number = errno;
  }
  Error error = system_error(fmt::format("cannot listen on {} port {}{}", address, ports.first,
                                         ports.last == ports.first ? "" : fmt::format("-{}", ports.last)),
                             number);
  if (error.code == ErrorCode::kNetwork) error.message += "; RONDO_PORT_RANGE and RONDO_SOCKET_IFNAME change where";
  throw Exception(std::move(error));
}

Listener listen_tcp(const std::string& host, uint16_t port, const std::string& advice, Exposure exposure,
                    Store::Deadline deadline) {
  std::vector<SocketAddress> addresses;
  try {
    addresses = resolve(host, port, deadline);
  } catch (const Exception& e) {
    fail(e.what());
  }
  SocketAddress address = choose(addresses, host, port);
  if (!address.is_loopback()) check_may_listen_beyond_loopback(address.text(), exposure);
  Store::Deadline give_up = std::min<Store::Deadline>(deadline, Clock::now() + kTakenRetry);
  Listener listener;
  while (true) {
    listener.socket = listen_socket(address, &listener.address);
    if (listener.socket.valid()) return listener;
    int reason = errno;
    if (reason == EADDRINUSE && Clock::now() < give_up) {
      wait_ready(-1, 0, Clock::now() + kTakenPause);
      continue;
    }
    if (reason == EADDRINUSE) {
      fail(fmt::format("cannot serve the store at {}: the port is taken by another program. {}", address.text(),
                       advice));
    }
    fail(fmt::format("cannot serve the store at {}: {}", address.text(), std::strerror(reason)));
  }
}

// Two processes that start at once must not both find the old socket dead, and the second one remove the first one's
// new socket. So all of this happens under the directory's lock.
Listener listen_unix(const std::string& path, Store::Deadline deadline) {
  SocketAddress address = unix_address(path);
  std::string directory = parent_of(path);
  // In /tmp another user may hold a lock for ever; this user's processes have one of their own.
  if (!is_own(directory)) directory = private_directory();
  if (directory == private_directory()) make_private_directory();
  DirectoryLock lock(directory, deadline);
  if (directory == private_directory()) sweep(directory);
  switch (occupant(path)) {
    case Occupant::kNone:
      break;
    case Occupant::kLeftOver:
      ::unlink(path.c_str());
      break;
    case Occupant::kForeign:
      fail(fmt::format("{} exists and is not a socket of this user: remove it", path));
    case Occupant::kAlive:
      fail(
          fmt::format("{} is served by a running process: another rank 0 of this job, or another job of the same name "
                      "(set RONDO_JOB_ID or RONDO_RENDEZVOUS)",
                      path));
  }
  Listener listener;
  listener.socket = listen_socket(address, &listener.address);
  if (!listener.socket.valid()) fail(fmt::format("cannot listen at {}: {}", path, std::strerror(errno)));
  ::chmod(path.c_str(), 0600);
  listener.unlink_path = path;
  return listener;
}

// A line of the map says: so many ids, from `inside` on, are those from `outside` on.
uint32_t outside_id(const std::string& map, uint32_t id) {
  std::istringstream lines(map);
  for (uint32_t inside = 0, outside = 0, count = 0; lines >> inside >> outside >> count;) {
    if (id >= inside && id - inside < count) return outside + (id - inside);
  }
  return id;
}

std::string private_directory() {
  return fmt::format("/tmp/rondo-{}", outside_id(file_text("/proc/self/uid_map"), ::geteuid()));
}

// A directory that was there before may have any mode and owner: it is opened without following a link, and then looked
// at.
void make_private_directory() {
  std::string path = private_directory();
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    fail(fmt::format("cannot make the directory {}: {}", path, std::strerror(errno)));
  }
  Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!directory.valid() || ::fstat(directory.get(), &info) != 0 || info.st_uid != ::geteuid() ||
      (info.st_mode & 077) != 0) {
    fail(
        fmt::format("{} must be a directory of this user with mode 0700, so that no other user can put a socket there; "
                    "it is not. Remove it, or set RONDO_RENDEZVOUS=unix:///a/path/of/yours",
                    path));
  }
}

}  // namespace rondo
