#include "transport/rendezvous/address.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>

#include "ring/base/json_text.h"
#include "ring/base/system_error.h"
#include "rondo/error.h"
#include "transport/rendezvous/rendezvous_url.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/socket.h"

namespace rondo {
namespace {

// One address of an interface: one with several addresses is in the list several times.
struct Interface {
  std::string name;
  SocketAddress address;
};

// Addresses of interfaces that are up, in the system's order.
std::vector<Interface> list_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    throw Exception(system_error("cannot list the network interfaces", errno));
  }
  std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    Interface found{i->ifa_name, {}};
    found.address.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&found.address.storage, i->ifa_addr, found.address.size);
    interfaces.push_back(std::move(found));
  }
  return interfaces;
}

std::string describe(const std::vector<Interface>& interfaces) {
  std::string text;
  for (const Interface& i : interfaces) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", i.name, i.address.host());
  }
  return text.empty() ? "none" : text;
}

// Bridges and tunnels that container and virtual machine managers make: other machines have the same addresses.
bool is_private_bridge(const std::string& name) {
  for (std::string_view prefix : {"docker", "br-", "virbr", "veth", "cni", "flannel", "lxc", "podman"}) {
    if (name.compare(0, prefix.size(), prefix) == 0) return true;
  }
  return false;
}

// Whether other machines may reach this one there. A guess by the kind of address: only a connection would prove it.
bool serves_other_hosts(const Interface& i) {
  return !i.address.is_loopback() && !i.address.is_link_local() && !is_private_bridge(i.name);
}

// RONDO_SOCKET_IFNAME: "eth0,ib" takes interfaces whose names begin so; "^docker,lo" takes all others.
class InterfaceFilter {
 public:
  // Empty entries between commas are left out.
  explicit InterfaceFilter(std::string_view text) {
    excludes_ = !text.empty() && text.front() == '^';
    if (excludes_) text.remove_prefix(1);
    while (!text.empty()) {
      size_t comma = std::min(text.find(','), text.size());
      if (comma > 0) prefixes_.emplace_back(text.substr(0, comma));
      text.remove_prefix(std::min(comma + 1, text.size()));
    }
  }
  // What is named is taken, whatever it is; what is merely not excluded must serve other hosts.
  bool takes(const Interface& i) const {
    bool named = false;
    for (const std::string& prefix : prefixes_) named |= i.name.compare(0, prefix.size(), prefix) == 0;
    return excludes_ ? !named && serves_other_hosts(i) : named;
  }

 private:
  bool excludes_ = false;
  std::vector<std::string> prefixes_;
};

// The local address from which packets to `target` leave: a connected UDP socket knows, and sends nothing.
std::optional<SocketAddress> route_to(SocketAddress target) {
  if (target.port() == 0) target.set_port(9);  // any: nothing is sent
  Descriptor socket([&] { return ::socket(target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0); });
  SocketAddress own;
  own.size = sizeof(sockaddr_storage);
  if (!socket.valid() || ::connect(socket.get(), target.get(), target.size) != 0 ||
      ::getsockname(socket.get(), own.get(), &own.size) != 0 || own.is_any()) {
    return std::nullopt;
  }
  return own;
}

// Where the master is, or for a rendezvous without an address what the default route leads to (documentation
// addresses, RFC 5737 and RFC 3849: nobody has them).
std::vector<SocketAddress> targets(const RendezvousUrl& url) {
  if (!url.host.empty()) return resolve(url.host, url.port);
  std::vector<SocketAddress> found = resolve("192.0.2.1", 9);
  std::vector<SocketAddress> v6 = resolve("2001:db8::1", 9);
  found.insert(found.end(), v6.begin(), v6.end());
  return found;
}

// RONDO_SOCKET_IFNAME overrules every guess.
std::vector<std::string> chosen_by_name(const Config& config, const std::vector<Interface>& interfaces) {
  InterfaceFilter filter(config.socket_interface);
  std::vector<std::string> hosts, link_local;
  for (const Interface& i : interfaces) {
    if (filter.takes(i)) (i.address.is_link_local() ? link_local : hosts).push_back(i.address.host());
  }
  // An interface's link-local address is the last choice even where the interface is named.
  if (hosts.empty()) hosts = link_local;
  if (hosts.empty()) {
    throw Exception(ErrorCode::kBootstrap,
                    fmt::format("RONDO_SOCKET_IFNAME={} matches no address of this machine; there are: {}",
                                json_text(config.socket_interface), describe(interfaces)));
  }
  return hosts;
}

// The address that this machine uses towards the master: on hosts of several networks the one that the ranks share.
// Without a usable route all addresses that may serve are published, and peers try them in turn.
std::vector<std::string> chosen_by_route(const RendezvousUrl& url, const std::vector<Interface>& interfaces) {
  auto interface_of = [&](const SocketAddress& address) -> const Interface* {
    for (const Interface& i : interfaces) {
      if (i.address.host() == address.host()) return &i;
    }
    return nullptr;
  };
  for (const SocketAddress& target : targets(url)) {
    std::optional<SocketAddress> own = route_to(target);
    const Interface* i = own ? interface_of(*own) : nullptr;
    if (i != nullptr && serves_other_hosts(*i)) return {own->host()};
  }
  std::vector<std::string> hosts;
  for (const Interface& i : interfaces) {
    if (serves_other_hosts(i)) hosts.push_back(i.address.host());
  }
  if (hosts.empty()) {
    throw Exception(ErrorCode::kBootstrap,
                    fmt::format("this machine has no address that other machines could reach; there are: {}. If all "
                                "ranks are on this machine, use MASTER_ADDR=127.0.0.1; otherwise name an interface by "
                                "RONDO_SOCKET_IFNAME",
                                describe(interfaces)));
  }
  return hosts;
}

}  // namespace

// By name, else loopback, else by route. Each address is compared with what this job may expose, whoever chose it.
std::vector<std::string> listen_addresses(const Launch& launch, const Config& config) {
  RendezvousUrl url = parse_rendezvous(launch.rendezvous);
  std::vector<Interface> interfaces = list_interfaces();
  std::vector<std::string> hosts;
  if (!config.socket_interface.empty()) {
    hosts = chosen_by_name(config, interfaces);
  } else if (launch.one_host) {
    hosts = {loopback_address()};
  } else {
    hosts = chosen_by_route(url, interfaces);
  }
  for (const std::string& host : hosts) {
    if (!is_loopback_host(host)) check_may_listen_beyond_loopback(host, exposure_of(config, launch.secret));
  }
  return hosts;
}

std::string reachable_address(const Config& config) {
  const std::vector<Interface> interfaces = list_interfaces();
  if (!config.socket_interface.empty()) return chosen_by_name(config, interfaces).front();
  if (std::none_of(interfaces.begin(), interfaces.end(), serves_other_hosts)) return loopback_address();
  return chosen_by_route(RendezvousUrl{}, interfaces).front();
}

// IPv4 first: ranks of one host then agree, whatever the order of their interfaces.
std::string loopback_address() {
  std::string found;
  for (const Interface& i : list_interfaces()) {
    std::string host = i.address.host();
    if (host == "127.0.0.1" || (host == "::1" && found.empty())) found = std::move(host);
  }
  if (found.empty()) throw Exception(ErrorCode::kBootstrap, "the loopback interface is down or has no address");
  return found;
}

std::string describe_interfaces() { return describe(list_interfaces()); }

// A name may lead to several addresses, of which one alone would let other machines in.
bool is_loopback_host(const std::string& host, Store::Deadline deadline) {
  const std::vector<SocketAddress> found = resolve(host, 0, deadline);
  return std::all_of(found.begin(), found.end(), [](const SocketAddress& one) { return one.is_loopback(); });
}

// Loopback is every machine's own.
bool names_this_machine(const std::string& host, Store::Deadline deadline) {
  const std::vector<Interface> interfaces = list_interfaces();
  for (const SocketAddress& address : resolve(host, 0, deadline)) {
    if (address.is_loopback()) return true;
    for (const Interface& i : interfaces) {
      if (i.address.host() == address.host()) return true;
    }
  }
  return false;
}

// Containers of one machine share the boot id, and may have network namespaces of their own: then loopback does not
// lead from one to the other.
std::string host_identity() {
  std::string boot_id;
  struct stat network {};
  errno = 0;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  // The thread's namespace: /proc/self shows the main thread's, which may have ended.
  if (boot_id.empty() || ::stat("/proc/thread-self/ns/net", &network) != 0) {
    throw Exception(system_error("/proc, which is needed to tell this machine from others, cannot be read", errno));
  }
  return fmt::format("{}/{}", boot_id, network.st_ino);
}

}  // namespace rondo
