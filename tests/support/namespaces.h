#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/child.h"

namespace rondo::testing {

// Namespaces namespaces, each joined to a bridge by a pair of virtual interfaces, stand for hosts at a switch. They end
// with the processes that hold them, after lifetime_seconds in any case. Needs root (or CAP_SYS_ADMIN and
// CAP_NET_ADMIN) and iproute2: throws std::runtime_error, which says so, without.
class Namespaces {
 public:
  explicit Namespaces(int hosts = 2, unsigned lifetime_seconds = 60);
  // What every host sends at most, headers included, from now on.
  void limit_rate(uint64_t bits_per_second);
  // The cable between a host and the switch.
  void pull_cable(int host) { run(hosts_, "ip link set port" + std::to_string(host) + " down"); }
  void plug_cable(int host) { run(hosts_, "ip link set port" + std::to_string(host) + " up"); }
  // What `from` sends to `to` goes nowhere from now on, and nobody is told: it is addressed to no host's card.
  void swallow(int from, int to);
  // What `from` sends to `to` arrives at the host `through` from now on, which takes it for its own: a relay there
  // listens, by sockets with IP_TRANSPARENT, at the address of `to`.
  void divert(int from, int to, int through);
  // Every TCP connection of a host ends with a RST to its other end.
  void reset_connections(int host) { run(host, "ss -K -t state established > /dev/null"); }
  // Puts a process, made by fork from the one that made the namespaces, on that host.
  void enter(int host) const;
  static std::string address(int host);

 private:
  pid_t pid(int host) const { return holders_[static_cast<size_t>(host)].pid(); }
  void run(int host, const std::string& commands);
  void require_ready(int host);

  const int hosts_;
  std::vector<Child> holders_;  // of the hosts, then of the switch
};

}  // namespace rondo::testing
